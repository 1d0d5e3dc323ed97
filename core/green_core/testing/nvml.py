"""A scripted NVML: a compiled ``libnvidia-ml.so.1`` for machines without an NVIDIA device.

``nvidia-ml-py`` finds it through ``LD_LIBRARY_PATH``, which the loader reads at process start;
so it works in subprocesses only::

    stub = NvmlStub(tmp_path, count=2)
    subprocess.run([...], env={**os.environ, **stub.env()})
    stub.set_power(400)          # the running process sees it
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from green_core.errors import GreenError

LIBRARY = "libnvidia-ml.so.1"
SUCCESS, NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED = 0, 3, 4, 9
FUNCTION_NOT_FOUND, GPU_IS_LOST, UNKNOWN = 13, 15, 999


def build_stub(folder: Path) -> Path:
    """Compile the stub into ``folder`` and answer the library's path; needs ``gcc``.

    Raises ``GreenError`` with the compiler's words when that fails.
    """
    library = folder / LIBRARY
    source = Path(__file__).with_name("nvml_stub.c")
    command = ["gcc", "-O1", "-Wall", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}"]
    try:
        done = subprocess.run(
            [*command, "-o", str(library), str(source)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise GreenError("gcc was not found. Install a C compiler to build the stub") from error
    if done.returncode:
        raise GreenError(f"{source.name} does not compile: {done.stderr.strip()}")
    return library


class NvmlStub:
    """Controls the stub. Every setter takes effect on the next call of a running process.

    ``watts`` is the power of each device, ``period_s`` how often its counter moves, ``base_j``
    where the counter stands now.
    """

    def __init__(
        self,
        folder: Path,
        *,
        library: Path | None = None,
        count: int = 1,
        name: str = "NVIDIA H100 80GB HBM3",
        watts: float = 100.0,
        period_s: float = 0.1,
        base_j: float = 1000.0,
    ) -> None:
        self.library = library or build_stub(folder)
        self._control = folder / "nvml.control"
        self.uuids = [f"GPU-{i:08x}-0000-4000-8000-000000000000" for i in range(count)]
        self._values: dict[str, str] = {"count": str(count), "name": name, "generation": "0"}
        for index, uuid in enumerate(self.uuids):
            self._values[f"uuid.{index}"] = uuid
        self._values["period_ms"] = repr(period_s * 1e3)
        self._watts = watts
        self._set_counter(base_j, watts, time.time())

    def env(self) -> dict[str, str]:
        """Variables for the process that shall see the stub."""
        path = os.environ.get("LD_LIBRARY_PATH", "")
        return {
            "LD_LIBRARY_PATH": str(self.library.parent) + (f":{path}" if path else ""),
            "NVML_STUB_CONTROL": str(self._control),
        }

    def counter_j(self, at_s: float | None = None) -> float:
        """What each device has used by now (or ``at_s``, wall clock), without the period."""
        at_s = time.time() if at_s is None else at_s
        return self._base_j + self._watts * (at_s - self._at_s)

    def set_power(self, watts: float) -> None:
        """Change the power from now on; the counter goes on from where it stands."""
        now_s = time.time()
        self._set_counter(self.counter_j(now_s), watts, now_s)

    def set_counter(self, energy_j: float) -> None:
        """Make the counter jump."""
        self._set_counter(energy_j, self._watts, time.time())

    def set_error(self, function: str, code: int) -> None:
        """Make a C function (``nvmlDeviceGetTotalEnergyConsumption``) answer ``code``."""
        self._values[f"error.{function}"] = str(code)
        self._write()

    def clear_errors(self) -> None:
        """Take back every :meth:`set_error`."""
        self._values = {k: v for k, v in self._values.items() if not k.startswith("error.")}
        self._write()

    def reload_driver(self) -> None:
        """Make every call fail until the process initialises NVML again."""
        self._values["generation"] = str(int(self._values["generation"]) + 1)
        self._write()

    def _set_counter(self, base_j: float, watts: float, at_s: float) -> None:
        self._base_j, self._watts, self._at_s = base_j, watts, at_s
        self._values |= {
            "base_mj": repr(base_j * 1e3),
            "watts": repr(watts),
            "at_ms": repr(at_s * 1e3),
        }
        self._write()

    def _write(self) -> None:
        # Replaced in one move: a process that reads sees the old file or the new one.
        draft = self._control.with_suffix(".draft")
        draft.write_text("".join(f"{k}={v}\n" for k, v in self._values.items()))
        os.replace(draft, self._control)
