"""What an adapter's test implements, and the bench on which the contract drives it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from green_core.activation import run_dir
from green_core.export.collector import GreenCollector
from green_core.export.ledger import Balance, balance
from green_core.export.runfiles import METRICS_FOLDER, POKE_FILE
from green_core.marks import Marks
from green_core.runtime import Runtime
from green_core.testing.doubles import RecordingObserver, ScriptedClock

OBSERVER = "recording"
NO_MARKS = Marks()
PATIENCE_S = 30.0  # of real time, for what happens in another thread


class Answered(msgspec.Struct):
    """What a client has got so far. ``account`` is the record that came with the answer."""

    tokens: list[int] = []
    finish_reason: str | None = None
    account: dict[str, Any] | None = None


class EngineDouble(Protocol):
    """An engine process whose loop is turned by hand and whose model is scripted.

    ``runtime`` is the adapter's. ``answers`` holds every request that got any output, by id.
    The clock given to ``start`` advances by a small time in each step that computes.
    """

    runtime: Runtime
    answers: dict[str, Answered]

    def submit(
        self,
        request_id: str,
        *,
        prompt_tokens: int = 8,
        output_tokens: int = 4,
        stop_after: int | None = None,
        marks: Marks = NO_MARKS,
    ) -> None:
        """A client's request arrives now. After ``stop_after`` tokens the model ends it by itself,
        which the engine cannot foresee.
        """

    def abort(self, request_id: str) -> None:
        """The client is gone. Aborting what is unknown or finished changes nothing."""

    def has_work(self) -> bool:
        """Whether the engine's loop would take another turn, or sleep."""

    def step(self) -> dict[str, int] | None:
        """One turn of the loop: tokens scheduled by request, ``None`` without work."""

    def running(self) -> list[str]:
        """Requests that hold a slot."""

    def counted(self) -> tuple[int, int]:
        """Running and waiting requests, as the engine's own statistics say."""

    def limits(self) -> tuple[int, int]:
        """Requests running and tokens per step that the engine would allow now."""

    def occupied(self) -> int:
        """Slots and cache blocks in use; 0 when nothing is left behind."""

    def close(self) -> None:
        """Shut the engine down as it would itself."""


class Rig:
    """One engine under test. ``steps`` are the computed steps, in the order of scheduling."""

    def __init__(
        self,
        engine: EngineDouble,
        clock: ScriptedClock,
        observer: RecordingObserver,
        ledger: Path,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.observer = observer
        self.steps: list[dict[str, int]] = []
        self._ledger = ledger
        self._closed = False
        self._collector = GreenCollector(run_dir() / METRICS_FOLDER, (run_dir() / POKE_FILE).touch)

    def step(self) -> dict[str, int] | None:
        """One turn of the engine's loop."""
        scheduled = self.engine.step()
        if scheduled:
            self.steps.append(scheduled)
        return scheduled

    def run(self, most: int = 1000) -> None:
        """Turn the loop until it sleeps."""
        for _ in range(most):
            if self.step() is None:
                return
        raise AssertionError(f"the engine was still at work after {most} turns")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Turn the loop until something that another thread does has come about."""
        give_up_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_s, f"never came about: {what}"
            self.step()
            time.sleep(0.002)

    def finished(self, request_id: str) -> bool:
        """Whether the client has its whole answer."""
        answer = self.engine.answers.get(request_id)
        return answer is not None and answer.finish_reason is not None

    def metric(self, name: str, **labels: str) -> float:
        """One sample of /metrics, 0.0 when it is not shown. Lets a minute pass."""
        self.clock.advance(60.0)
        for family in self._collector.collect():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return 0.0

    def close(self) -> Balance:
        """Shut down; the books as the ledger shows them."""
        if not self._closed:
            self._closed = True
            self.engine.close()
        (books,) = balance(self._ledger)
        return books


class AdapterContract:
    """Base of the groups of tests."""

    def start(
        self, config: Mapping[str, Any], *, plugins: Mapping[str, Any], clock: ScriptedClock
    ) -> EngineDouble:
        """Start the engine; ``config`` has dotted keys, ``plugins`` stand beside the installed.

        It must have asked for green in this process (``activate``) and, on ``close``, have
        taken that back.
        """
        raise NotImplementedError

    @contextmanager
    def rig(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        clock: ScriptedClock | None = None,
        **plugins: Any,
    ) -> Iterator[Rig]:
        """An engine with a ledger and a recording observer, closed at the end.

        ``plugins`` are doubles by the name that ``config`` uses for them.
        """
        clock = clock or ScriptedClock()
        observer = RecordingObserver()
        with tempfile.TemporaryDirectory() as folder:
            ledger = Path(folder, "ledger.sqlite")
            keys = {"energy.meter": "model", "carbon.zone": "DE", **(config or {})}
            keys["ledger.path"] = str(ledger)
            keys["policies.observers"] = [*keys.get("policies.observers", ()), OBSERVER]
            engine = self.start(keys, plugins={OBSERVER: observer, **plugins}, clock=clock)
            rig = Rig(engine, clock, observer, ledger)
            try:
                yield rig
            finally:
                rig.close()
