"""From vLLM's front to its scheduler and back: marks go out, accounts come in, nothing leaks."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import pytest
from harness import Loop, green_scheduler, tokens
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.engine.parallel_sampling import ParentRequest
from vllm.v1.request import Request

from green_core.errors import MarkError
from green_core.marks import WIRE_KEY
from green_core.testing.doubles import RecordingObserver
from vllm_green import front

OBSERVED = {"policies.observers": ["seen"]}


class Processor(OutputProcessor):
    """vLLM's own, with the seams of the front."""

    add_request = front.wrap_add_request(OutputProcessor.add_request)
    process_outputs = front.wrap_process_outputs(OutputProcessor.process_outputs)


@pytest.fixture(autouse=True)
def _fresh_front() -> Iterator[None]:
    front.frontend.cache_clear()
    yield
    front.frontend.cache_clear()
    front.current.set(None)


def ask(
    processor: Processor, scheduler: Any, name: str, params: SamplingParams, queue: Any = None
) -> None:
    """What ``LLMEngine.add_request`` does, n > 1 included."""
    request = EngineCoreRequest(
        request_id=name,
        prompt_token_ids=tokens(name, 8),
        mm_features=None,
        sampling_params=params,
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
        external_req_id=name,
    )
    parent = ParentRequest(request) if params.n > 1 else None
    for index in range(params.n):
        child = copy(request)
        if parent is not None:
            child.request_id, child.sampling_params = parent.get_child_info(index)
        processor.add_request(child, None, parent, index, queue)
        scheduler.add_request(Request.from_engine_core_request(child, None))


def run(processor: Processor, scheduler: Any) -> dict[str, Any]:
    """All finished request outputs, by id."""
    loop = Loop(scheduler)
    done = {}
    while loop.step():
        for output in processor.process_outputs(loop.outputs).request_outputs:
            if output.finished:
                done[output.request_id] = output
        loop.outputs.clear()
    return done


def params(**options: Any) -> SamplingParams:
    return SamplingParams(
        ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY, **options
    )


def test_an_offline_output_carries_its_account_and_nothing_else_of_ours() -> None:
    with green_scheduler() as scheduler:
        processor = Processor(None, log_stats=False)
        ask(processor, scheduler, "r", params(max_tokens=3))
        output = run(processor, scheduler)["r"]
    assert output.green["energy_j"] > 0.0
    assert output.green["zone"] == "DE"
    assert output.kv_transfer_params is None


def test_children_of_one_request_are_billed_together() -> None:
    """``n=2``: two engine requests, marked alike, one answer with the sum of both."""
    seen = RecordingObserver()
    with green_scheduler(OBSERVED, plugins={"seen": seen}) as scheduler:
        processor = Processor(None, log_stats=False)
        marks = {"green_tenant": "blue"}
        ask(processor, scheduler, "r", params(n=2, max_tokens=5, extra_args=marks))
        ask(processor, scheduler, "other", params(max_tokens=3))
        outputs = run(processor, scheduler)
    assert len(outputs["r"].outputs) == 2
    children = [record for record in seen.records if record.request_id != "other"]
    assert [record.tenant for record in children] == ["blue", "blue"]
    total_j = sum(record.energy_j for record in children)
    assert outputs["r"].green["energy_j"] == pytest.approx(total_j, rel=1e-5)
    assert outputs["other"].green["energy_j"] < total_j


def test_children_that_end_at_different_times_are_billed_together() -> None:
    seen = RecordingObserver()
    with green_scheduler(OBSERVED, plugins={"seen": seen}, max_seqs=1) as scheduler:
        processor = Processor(None, log_stats=False)
        ask(processor, scheduler, "r", params(n=3, max_tokens=4))
        output = run(processor, scheduler)["r"]
    total_j = sum(record.energy_j for record in seen.records)
    assert len(seen.records) == 3
    assert output.green["energy_j"] == pytest.approx(total_j, rel=1e-5)


def test_nobody_else_can_speak_under_our_key() -> None:
    """A client's extra arguments may not forge marks that only the front may set."""
    seen = RecordingObserver()
    with green_scheduler(OBSERVED, plugins={"seen": seen}) as scheduler:
        processor = Processor(None, log_stats=False)
        forged = {WIRE_KEY: {"tenant": "somebody"}}
        ask(processor, scheduler, "r", params(max_tokens=2, extra_args=forged))
        run(processor, scheduler)
    assert seen.record("r").tenant == "default"


@pytest.mark.parametrize("served", [True, False], ids=["server", "offline"])
def test_a_malformed_mark_among_extra_arguments_is_the_clients_fault(served: bool) -> None:
    """A server answers 400 to vLLM's own error class, and 500 to all others from here."""
    expected = VLLMValidationError if served else MarkError
    with green_scheduler() as scheduler:
        processor = Processor(None, log_stats=False)
        if served:
            front.current.set(front.Answer(from_server=True))
        queue = RequestOutputCollector(RequestOutputKind.FINAL_ONLY, "r") if served else None
        bad = params(max_tokens=2, extra_args={"green_class": "urgent"})
        with pytest.raises(expected, match=r"green_class.*unknown class 'urgent'"):
            ask(processor, scheduler, "r", bad, queue)
        assert not processor.request_states
