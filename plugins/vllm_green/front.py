"""The front: marks go out with a request, accounts come back with its last output.

A request's answer may need several engine requests (``n``, batches of prompts, beam search). One
:class:`Answer` lives in the context of the task that serves it and collects their accounts, so
``usage``, traces and offline outputs all read the same numbers.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any

import msgspec

from green_core.errors import MarkError
from green_core.faults import Faults
from green_core.frontend import Frontend
from green_core.marks import WIRE_KEY, Marks
from green_core.values import STOP_PREFIX

Original = Callable[..., Any]
faults = Faults()


class Answer:
    """One answer in the making: its marks, and the accounts of its engine requests so far."""

    __slots__ = ("asked", "from_server", "marks", "may_mark", "records")

    def __init__(
        self, marks: Marks | None = None, *, may_mark: bool = True, from_server: bool = False
    ) -> None:
        self.marks = marks or Marks()
        self.from_server = from_server
        self.may_mark = may_mark
        self.asked = 0
        self.records: dict[str, dict[str, Any]] = {}


current: contextvars.ContextVar[Answer | None] = contextvars.ContextVar("green", default=None)
_traced: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar(
    "green_traced", default=None
)


@functools.cache
def frontend() -> Frontend:
    """This process's front half of the core."""
    return Frontend.from_environment()


def answer() -> Answer:
    """The answer that this task makes; begun here when no server did.

    Without a server one task may make many answers, one after the other: a new one is begun
    once the last is complete.
    """
    found = current.get()
    if found is None or (not found.from_server and 0 < found.asked == len(found.records)):
        found = Answer()
        current.set(found)
    return found


def wrap_to_sampling_params(original: Original) -> Original:
    """Read the marks in a request's body while the server can still answer 400."""

    def to_sampling_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = answer()
        if found.may_mark:
            reader = frontend().reader
            fields = reader.from_fields(getattr(self, "vllm_xargs", None))
            tier = reader.from_tier(getattr(self, "service_tier", None))
            found.marks = found.marks.over(fields).over(tier)
        if getattr(self, "tools", None) and getattr(self, "tool_choice", None) != "none":
            # Half a call is no call. The engine does not know of tools, so it is told here.
            found.marks = msgspec.structs.replace(found.marks, stop=False)
        return original(self, *args, **kwargs)

    return to_sampling_params


def wrap_to_beam_search_params(original: Original) -> Original:
    """Refuse what cannot be had: beams end together, and are chosen by their whole length."""

    def to_beam_search_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = answer()
        marks = found.marks
        if found.may_mark:
            fields = frontend().reader.from_fields(getattr(self, "vllm_xargs", None))
            marks = marks.over(fields)
        if marks.stop:
            raise MarkError(
                "green_stop",
                "beam search cannot be stopped early",
                remedy='Leave out X-Green-Stop and green_stop, or "use_beam_search"',
            )
        return original(self, *args, **kwargs)

    return to_beam_search_params


def wrap_add_request(original: Original) -> Original:
    """Attach the marks to the engine request, and the answer to the request's state."""

    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        first = request.request_id not in self.request_states
        if first:
            _ = frontend().engine  # asked for and absent in the engine is fatal (FIELD P2, P3)
            found = _answer_of(*args, **kwargs)
            try:
                _attach_marks(request, found)
            except MarkError as error:
                if not found.from_server:
                    raise
                raise _client_error(error) from error
        result = original(self, request, *args, **kwargs)
        if first:
            found.asked += 1
            self.request_states[request.request_id].green = found
        return result

    return add_request


def _client_error(error: MarkError) -> Exception:
    """What vLLM answers 400 to; any other error from here is the engine's fault to it.

    Bodies are read earlier for the OpenAI APIs, so this is for ``/inference/v1/generate``.
    """
    from vllm.exceptions import VLLMValidationError

    refusal: Exception = VLLMValidationError(str(error))
    return refusal


def wrap_process_outputs(original: Original) -> Original:
    """Take accounts out of the engine's outputs before anyone can see or echo them."""

    def process_outputs(self: Any, engine_core_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            answers = _take_accounts(self.request_states, engine_core_outputs)
        except Exception:
            faults.note("reading accounts")
            answers = {}
        result = original(self, engine_core_outputs, *args, **kwargs)
        for request_output in result.request_outputs:  # offline LLM only; empty in a server
            done = answers.get(request_output.request_id)
            if done is not None and request_output.finished:
                request_output.green = _usage(done)
        return result

    return process_outputs


def _take_accounts(states: Any, outputs: Any) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for output in outputs:
        reason = output.stop_reason
        if reason is not None and str(reason).startswith(STOP_PREFIX):
            _keep_last_token(states.get(output.request_id))
        parameters = output.kv_transfer_params
        if not parameters or WIRE_KEY not in parameters:
            continue
        record = parameters.pop(WIRE_KEY)
        output.kv_transfer_params = parameters or None
        state = states.get(output.request_id)
        found = getattr(state, "green", None)
        if found is not None:
            found.records[output.request_id] = record
            answers[state.external_req_id] = found
    return answers


def _keep_last_token(state: Any) -> None:
    """vLLM leaves the token that stopped an answer out of its text; ours is one of the text."""
    detokenizer = getattr(state, "detokenizer", None)
    if detokenizer is not None:
        update = detokenizer.update
        detokenizer.update = lambda new_token_ids, stop_terminated: update(new_token_ids, False)


def _usage(done: Answer) -> dict[str, Any] | None:
    """``usage.green``, or ``None`` when making it failed."""
    try:
        return frontend().usage(done.records.values())
    except Exception:
        faults.note("usage")
        return None


def wrap_do_tracing(original: Original) -> Original:
    """Note whose span is about to be made."""

    def do_tracing(self: Any, output: Any, req_state: Any, *args: Any, **kwargs: Any) -> Any:
        found = getattr(req_state, "green", None)
        token = _traced.set(found.records.get(output.request_id) if found else None)
        try:
            return original(self, output, req_state, *args, **kwargs)
        finally:
            _traced.reset(token)

    return do_tracing


def wrap_instrument_manual(original: Original) -> Original:
    """Add our attributes to the request's own span."""

    def instrument_manual(*args: Any, **kwargs: Any) -> Any:
        record = _traced.get()
        if record is not None and frontend().config.telemetry.traces:
            try:
                ours = frontend().span_attributes(record)
                kwargs["attributes"] = {**(kwargs.get("attributes") or {}), **ours}
            except Exception:
                faults.note("span attributes")
        return original(*args, **kwargs)

    return instrument_manual


def wrap_usage(original: Original) -> Original:
    """Put ``green`` into the usage of an answer once its accounts are in."""

    def __init__(self: Any, **data: Any) -> None:
        found = current.get()
        if found is not None and found.records and frontend().config.telemetry.usage:
            green = _usage(found)
            if green is not None:
                data["green"] = green
        original(self, **data)

    return __init__


def wrap_make_async(original: Original) -> Original:
    """Let work that is moved to a thread know which answer it is for."""

    def make_async(func: Original, executor: Any = None) -> Original:
        def in_context(context: contextvars.Context, *args: Any, **kwargs: Any) -> Any:
            return context.run(func, *args, **kwargs)

        run = original(in_context, executor)
        return lambda *args, **kwargs: run(contextvars.copy_context(), *args, **kwargs)

    return make_async


def wrap_registry(original: Original) -> Original:
    """Stop the start-up if the engine is not green, before anything is served (FIELD P2, P3)."""

    def get_prometheus_registry() -> Any:
        _ = frontend().engine
        return original()

    return get_prometheus_registry


def _answer_of(
    prompt: Any, parent_req: Any = None, request_index: int = 0, queue: Any = None, **_: Any
) -> Answer:
    """The answer that an engine request belongs to, from ``OutputProcessor.add_request``.

    With a queue (async engine) a task makes one answer. Offline the children of one request
    (``n`` > 1) share theirs.
    """
    if queue is not None:
        return answer()
    if parent_req is None:
        return Answer()
    found: Answer | None = getattr(parent_req, "green", None)
    if found is None:
        found = parent_req.green = Answer()
    return found


def _attach_marks(request: Any, found: Answer) -> None:
    parameters = request.sampling_params
    field = "extra_args"
    if parameters is None:
        parameters, field = request.pooling_params, "extra_kwargs"
    extra = getattr(parameters, field) or {}
    marks = found.marks
    if found.may_mark:
        fields = {name: value for name, value in extra.items() if name.startswith("green_")}
        marks = marks.over(frontend().reader.from_fields(fields))
    if marks != Marks():
        setattr(parameters, field, {**extra, WIRE_KEY: msgspec.to_builtins(marks)})
    elif WIRE_KEY in extra:  # nobody but us speaks under this key
        setattr(parameters, field, {k: v for k, v in extra.items() if k != WIRE_KEY})
