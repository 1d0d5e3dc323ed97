"""Third-party plugins as a user would ship them: found by entry point, chosen by config."""

from __future__ import annotations

import threading
import time
from typing import Any

from green_core import Admit, BatchPlan, Hold, hookimpl


class Cap:
    """Limits running requests to ``n``."""

    @hookimpl
    def green_batch_policy(self, params):
        return lambda queue, grid: BatchPlan(max_running=params["n"], reason="test")


class HoldAll:
    """Holds every request that may be held until shortly before its deadline."""

    @hookimpl
    def green_admission_policy(self, params):
        margin_s = params.get("margin_s", 3.0)

        def admit(request, grid):
            if request.deadline_s is None or request.urgency == "interactive":
                return Admit()
            return Hold(until_s=request.deadline_s - margin_s)

        return admit


class Raises:
    @hookimpl
    def green_batch_policy(self):
        return self._fail

    @hookimpl
    def green_admission_policy(self):
        return self._fail

    def _fail(self, *views: Any) -> Any:
        raise RuntimeError("a policy of a third party is broken")


class Sleeps:
    @hookimpl
    def green_batch_policy(self):
        return self._sleep

    @hookimpl
    def green_admission_policy(self):
        return self._sleep

    def _sleep(self, *views: Any) -> Any:
        time.sleep(10)
        return Admit()


class Nonsense:
    @hookimpl
    def green_batch_policy(self):
        return lambda queue, grid: BatchPlan(max_running=-4)

    @hookimpl
    def green_admission_policy(self):
        return lambda request, grid: "maybe"


class Spins:
    """Keeps half a core of the engine's process busy, whatever the engine does."""

    @hookimpl
    def green_configure(self):
        threading.Thread(target=self._spin, name="spins", daemon=True).start()

    def _spin(self) -> None:
        while True:
            until_s = time.thread_time() + 0.02
            while time.thread_time() < until_s:
                pass
            time.sleep(0.02)


class NvmlOnCpu:
    """Lets a CPU engine read the scripted NVML, which greenserve itself would refuse."""

    @hookimpl
    def green_meters(self, engine):
        import msgspec

        from green_core.energy.nvml import nvml_meters

        return nvml_meters(msgspec.structs.replace(engine, device="stub"))
