"""A fault of ours in the front never costs a client its answer."""

import logging
from types import SimpleNamespace

import pytest

from vllm_green import front


class Broken:
    """A front whose every figure fails."""

    config = SimpleNamespace(telemetry=SimpleNamespace(usage=True, traces=True, metrics=True))

    def usage(self, records):
        raise ValueError("no figure")

    def span_attributes(self, record):
        raise ValueError("no figure")


@pytest.fixture(autouse=True)
def _broken(monkeypatch):
    monkeypatch.setattr(front, "frontend", Broken)
    monkeypatch.setattr(front, "faults", front.Faults())
    monkeypatch.setattr(logging.getLogger("greenserve"), "propagate", True)


def test_usage_is_built_without_green(caplog):
    answer = front.Answer()
    answer.records["a"] = {}
    token = front.current.set(answer)
    try:
        built = SimpleNamespace()
        init = front.wrap_usage(lambda self, **data: vars(self).update(data))
        for _ in range(3):
            init(built, prompt_tokens=3)
    finally:
        front.current.reset(token)
    assert vars(built) == {"prompt_tokens": 3}
    assert len([r for r in caplog.records if "usage failed" in r.message]) == 1


def test_spans_are_made_without_our_attributes():
    token = front._traced.set({})
    try:
        make = front.wrap_instrument_manual(lambda **kwargs: kwargs)
        assert make(attributes={"theirs": 1}) == {"attributes": {"theirs": 1}}
    finally:
        front._traced.reset(token)


def test_outputs_are_processed_without_accounts():
    class Unreadable:
        request_id = "a"

        @property
        def kv_transfer_params(self):
            raise ValueError("odd output")

    processor = SimpleNamespace(request_states={})
    process = front.wrap_process_outputs(
        lambda self, outputs: SimpleNamespace(request_outputs=[], seen=len(outputs))
    )
    assert process(processor, [Unreadable()]).seen == 1
