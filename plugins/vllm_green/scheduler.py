"""The scheduler: a mixin on whatever class the engine chose (sync or async, FIELD P5).

It adds no policy of its own. Each step it lowers the engine's run-time limits to the plan, keeps
held requests in a side table, and tells the runtime what each step computed. Every signature is
forwarded whole (FIELD P4); nothing is remembered between ``schedule`` and ``update_from_output``
but what the step itself scheduled (FIELD P6).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from green_core.faults import Faults
from green_core.holding import HoldTable
from green_core.runtime import Runtime
from green_core.values import Hold, QueueView
from vllm_green.account import may_be_held, read_marks, request_view
from vllm_green.meter import StepMeter
from vllm_green.stopping import Stopper, end_here

if TYPE_CHECKING:
    EngineScheduler: Any
else:
    EngineScheduler = object  # the engine's class comes behind, see green_class()

# Schedules in a row that computed nothing although requests wait, before limits are lifted.
_STALL_SCHEDULES = 200


class GreenSchedulerMixin(EngineScheduler):  # type: ignore[misc]
    """Mixed in before the engine's scheduler class by :func:`green_class`."""

    max_num_active_reqs: int
    max_num_scheduled_tokens: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        from vllm_green.engine import start_runtime

        self.green: Runtime = start_runtime(self)
        self.green.on_wake = self._green_woken
        self._green_core: Any = None  # the EngineCoreProc, once it is built
        self._green_holds: HoldTable[Any] = HoldTable(self.green)
        self._green_meter = StepMeter(self.green, self.max_model_len)
        self._green_stopper = Stopper(
            self.green,
            self.structured_output_manager,
            self.vllm_config.model_config.logprobs_mode,
        )
        self._green_limits: tuple[int, int] = (
            self.max_num_active_reqs,
            self.max_num_scheduled_tokens,
        )
        self._green_preemptions = 0
        self._green_empty = 0
        self._green_cost_s = 0.0  # ours since the last step was noted
        self._green_diverted: Hold | None = None
        self._green_uncounted = False
        self._green_review_all = False
        self._green_faults = Faults()

    def green_attach(self, core: Any) -> None:
        """Tell the scheduler which engine process loop to wake."""
        self._green_core = core

    # --- requests come and go -------------------------------------------------------------

    def add_request(self, request: Any) -> None:
        """Open the request's account, and hold it if a policy says so."""
        session = self.requests.get(request.request_id)
        if session is not None:  # a further chunk of a streaming session
            super().add_request(request)
            try:
                self._green_meter.next_turn(session, self.requests)
            except Exception:
                self._green_fail()
            return
        try:
            self._green_diverted = self._green_admit(request)
        except Exception:
            self._green_fail()
        try:
            super().add_request(request)
        finally:
            self._green_diverted = None

    def _green_admit(self, request: Any) -> Hold | None:
        account = self._green_meter.open(request)
        self._green_stopper.open(request, account, read_marks(request).stop)
        if request.prompt_token_ids:  # none where the client sent embeddings
            self.green.note_prompt(request.prompt_token_ids)
        if account.urgency == "interactive" or not self.green.decides or not may_be_held(request):
            return None
        view = request_view(request, account, self.green, self._green_counts())
        answer = self.green.admit_all([view])[0]
        return answer if isinstance(answer, Hold) and answer.until_s > view.now_s else None

    def _enqueue_waiting_request(self, request: Any) -> None:
        decision, self._green_diverted = self._green_diverted, None
        if decision is None:
            super()._enqueue_waiting_request(request)
            return
        try:
            account = self._green_meter[request.request_id]
            view = request_view(request, account, self.green, self._green_counts())
            self._green_holds.hold(request, view, decision)
        except Exception:
            held = request.request_id in self._green_holds
            self._green_fail()  # lets go of all that is held, this one too if it got that far
            if not held:
                super()._enqueue_waiting_request(request)
            return
        self.deferred_waiting.add(request)
        self._green_show_held()

    def finish_requests(self, request_ids: Any, finished_status: Any) -> list[Any]:
        """Abort in every state, held ones included (FIELD P11)."""
        finished: list[Any] = super().finish_requests(request_ids, finished_status)
        try:
            self._green_drop(finished)
        except Exception:
            self._green_fail()
        return finished

    def _green_drop(self, finished: list[Any]) -> None:
        now_s = self.green.clock.now()
        held = len(self._green_holds)
        for request in finished:
            request_id = request.request_id
            account = self._green_meter.get(request_id)
            if account is None:
                continue
            if request_id in self._green_holds:
                account.held_s += self._green_holds.drop(request_id, now_s, "abort")
            self._green_meter.close(request_id, str(request.get_finished_reason()))
            self._green_stopper.close(request_id)
        if len(self._green_holds) != held:
            self._green_show_held()

    def _preempt_request(self, *args: Any, **kwargs: Any) -> None:
        self._green_preemptions += 1
        super()._preempt_request(*args, **kwargs)

    # --- what the engine asks ---------------------------------------------------------------

    def get_request_counts(self) -> tuple[int, int]:
        """Running and waiting; held ones wait too, as every statistic should say."""
        running, waiting = super().get_request_counts()
        return running, waiting if self._green_uncounted else waiting + len(self._green_holds)

    def has_finished_requests(self) -> bool:
        """A held request is not a finished one that a KV connector still works on."""
        uncounted, self._green_uncounted = self._green_uncounted, False
        try:
            answer: bool = super().has_finished_requests()
        finally:
            self._green_uncounted = uncounted
        return answer

    def has_requests(self) -> bool:
        """Whether the engine should step; held requests alone are no reason to."""
        if not self._green_holds:
            answer: bool = super().has_requests()
            if not answer and self._green_closing():
                self._green_end()  # now: the engine's tear-down may not leave time for it
            return answer
        try:
            self._green_review()
        except Exception:
            self._green_fail()
        self._green_uncounted = True
        try:
            answer = super().has_requests()
        finally:
            self._green_uncounted = False
        if not answer and self._green_core is None and self._green_holds:
            time.sleep(0.02)  # the in-process engine has no queue to block on
        return answer

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the plan, then schedule as the engine would."""
        started = time.perf_counter()
        start_s = self.green.clock.now()
        try:
            if self._green_holds:
                self._green_review()
            if self.green.plans:
                self._green_apply_plan(start_s)
            else:
                self._green_limit(*self._green_limits)
        except Exception:
            self._green_fail()
        before = time.perf_counter()
        output = super().schedule(*args, **kwargs)
        after = time.perf_counter()
        try:
            if output.num_scheduled_tokens:
                self._green_empty = 0
                self._green_meter.note(output, start_s, len(self.waiting))
            else:
                self._green_watch_progress()
        except Exception:
            self._green_fail()
        self._green_cost_s += before - started + time.perf_counter() - after
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Let the engine update, then price the step and put accounts into finished answers."""
        stopper = self._green_stopper
        stopper.results = args[0] if args else kwargs.get("model_runner_output")
        outputs = super().update_from_output(scheduler_output, *args, **kwargs)
        started = time.perf_counter()
        self._green_cost_s += stopper.take_cost_s()
        stopper.results = None
        try:
            for client_outputs in outputs.values():
                stopper.hide(client_outputs.outputs)
            if self._green_meter.price(scheduler_output, self._green_cost_s):
                self._green_cost_s = 0.0
            for client_outputs in outputs.values():
                self._green_meter.answer(client_outputs.outputs, self.requests)
        except Exception:
            self._green_fail()
        self._green_cost_s += time.perf_counter() - started
        return outputs

    def _update_request_with_output(
        self, request: Any, new_token_ids: list[int], *args: Any, **kwargs: Any
    ) -> tuple[list[int], bool]:
        """Take committed tokens in, then end the answer if an exit policy has said so."""
        new_token_ids, stopped = super()._update_request_with_output(
            request, new_token_ids, *args, **kwargs
        )
        if stopped:
            self._green_stopper.drop(request.request_id)
        elif reason := self._green_stopper.reason(request, new_token_ids):
            end_here(request, reason)
            stopped = True
        return new_token_ids, stopped

    def shutdown(self) -> None:
        """Close every account and the books, within two seconds."""
        self._green_end()
        super().shutdown()

    def _green_end(self) -> None:
        try:
            self._green_meter.close_all("shutdown")
            self.green.close()
        except Exception:
            self._green_faults.note("closing the books")

    # --- ours -------------------------------------------------------------------------------

    def _green_counts(self) -> tuple[int, int, int]:
        return len(self.running), len(self.waiting), len(self._green_holds)

    def _green_woken(self, changed: bool) -> None:
        """Runs in the housekeeping thread: wake the engine's loop so that holds are reviewed."""
        self._green_review_all |= changed
        if self._green_core is not None and len(self._green_holds):
            from vllm.v1.engine import EngineCoreRequestType

            self._green_core.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))

    def _green_review(self) -> None:
        now_s = self.green.clock.now()
        holds = self._green_holds
        if self._green_closing() or not self.green.may_hold:
            released = holds.release_all(now_s, "shutdown" if self._green_closing() else "off")
        else:
            if self._green_review_all:
                self._green_review_all = False
                holds.review_all()
            running, waiting, _ = self._green_counts()
            room = self.max_num_active_reqs - running - waiting
            if not holds.due(now_s, room):
                return
            released = holds.review(now_s, room, self._green_refresh)
        self._green_enqueue(released)

    def _green_enqueue(self, released: list[tuple[Any, float]]) -> None:
        for request, held_s in released:
            self.deferred_waiting.discard(request)
            super()._enqueue_waiting_request(request)
            account = self._green_meter.get(request.request_id)
            if account is not None:
                account.held_s += held_s
        if released:
            self._green_show_held()

    def _green_show_held(self) -> None:
        """Tell both metrics; an engine that does not step would not tell vLLM's by itself."""
        try:
            self.green.note_held(len(self._green_holds))
            if self._green_core is not None and not self.running:
                from vllm.v1.engine import EngineCoreOutputs

                stats = self.make_stats()
                if stats is not None:
                    told = EngineCoreOutputs(scheduler_stats=stats)
                    self._green_core.output_queue.put_nowait((0, told))
        except Exception:
            self._green_faults.note("showing held requests")

    def _green_closing(self) -> bool:
        core = self._green_core
        return core is not None and not core.is_running()

    def _green_refresh(self, view: Any) -> Any:
        request = self.requests[view.request_id]
        account = self._green_meter[view.request_id]
        return request_view(request, account, self.green, self._green_counts())

    def _green_apply_plan(self, now_s: float) -> None:
        engine_running, engine_tokens = self._green_limits
        running, waiting, held = self._green_counts()
        plan = self.green.plan(
            QueueView(
                now_s=now_s,
                running=running,
                waiting=waiting,
                held=held,
                engine_max_running=engine_running,
                engine_max_tokens=engine_tokens,
                kv_usage=self.kv_cache_manager.usage,
                preemptions=self._green_preemptions,
                last_step=self.green.last_step,
            )
        )
        limit = engine_running if plan.max_running is None else plan.max_running
        tokens = engine_tokens if plan.max_tokens is None else plan.max_tokens
        # Every running request keeps its next token, drafts included.
        floor = running * (1 + self.num_spec_tokens)
        self._green_limit(
            max(1, min(limit, engine_running)), min(max(tokens, floor), engine_tokens)
        )

    def _green_limit(self, running: int, tokens: int) -> None:
        if (running, tokens) != (self.max_num_active_reqs, self.max_num_scheduled_tokens):
            self.max_num_active_reqs, self.max_num_scheduled_tokens = running, tokens
            self.green.note_limits(running=running, tokens=tokens)

    def _green_watch_progress(self) -> None:
        """Lift our limits if the engine stands still under them (FIELD P9)."""
        lowered = self._green_limits != (self.max_num_active_reqs, self.max_num_scheduled_tokens)
        if lowered and (self.running or self.waiting):
            self._green_empty += 1
            if self._green_empty == _STALL_SCHEDULES:
                self.green.no_progress()

    def _green_fail(self) -> None:
        """A fault of ours: say it once, put the engine's limits back, hold nothing, go on."""
        self._green_faults.note("the scheduler's part")
        self._green_limit(*self._green_limits)
        self._green_enqueue(self._green_holds.release_all(self.green.clock.now(), "fault"))


def green_class(base: type) -> type:
    """The class the engine chose, with the mixin before it."""
    if issubclass(base, GreenSchedulerMixin):
        return base
    return type(f"Green{base.__name__}", (GreenSchedulerMixin, base), {"__module__": __name__})
