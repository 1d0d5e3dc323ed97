"""A scripted NVML: a compiled ``libnvidia-ml.so.1`` for machines without an NVIDIA device.

``nvidia-ml-py`` finds it through ``LD_LIBRARY_PATH``, which the loader reads at process start;
so it works in subprocesses only::

    stub = NvmlStub(tmp_path, count=2)
    subprocess.run([...], env={**os.environ, **stub.env()})
    stub.set_power(400)          # the running process sees it
    stub.power_limit_w(0)        # and this is what it has set
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from green_core.errors import GreenError

LIBRARY = "libnvidia-ml.so.1"
SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED = 0, 2, 3, 4, 9
FUNCTION_NOT_FOUND, GPU_IS_LOST, NOT_READY, UNKNOWN = 13, 15, 27, 999
POWER_AVERAGE, POWER_INSTANT = 185, 186  # fields of nvmlDeviceGetFieldValues


class MigSlice(msgspec.Struct, frozen=True):
    """A MIG device of the stub: ``slices`` are those of its GPU instance, ``compute_slices``
    those of its compute instance (by default all of them).
    """

    uuid: str
    gpu_instance: int = 1
    compute_instance: int = 0
    slices: int = 1
    compute_slices: int | None = None


def build_stub(folder: Path, *, missing: Sequence[str] = ()) -> Path:
    """Compile the stub into ``folder`` and answer the library's path; needs ``gcc``.

    ``missing`` names C functions to leave out, as in a library of an older driver. Raises
    ``GreenError`` with the compiler's words when compiling fails.
    """
    library = folder / LIBRARY
    source = Path(__file__).with_name("nvml_stub.c")
    command = ["gcc", "-O1", "-Wall", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}"]
    command += [f"-D{function}=absent_{function}" for function in missing]
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

    ``name`` is one for all devices or one for each, ``watts`` the power of each device,
    ``period_s`` how often its counter moves, ``base_j`` where the counter stands now. ``mig``
    gives the slices of devices with MIG mode on. Methods that take ``index`` speak of all
    devices without it. Further values (see ``nvml_stub.c``) are set by :meth:`set`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        library: Path | None = None,
        count: int = 1,
        name: str | Sequence[str] = "NVIDIA H100 80GB HBM3",
        watts: float = 100.0,
        period_s: float = 0.1,
        base_j: float = 1000.0,
        mig: Mapping[int, Sequence[MigSlice]] | None = None,
    ) -> None:
        self.library = library or build_stub(folder)
        self._control = folder / "nvml.control"
        self._state = folder / "nvml.control.state"
        self.uuids = [f"GPU-{i:08x}-0000-4000-8000-000000000000" for i in range(count)]
        names = [name] * count if isinstance(name, str) else name
        self._values: dict[str, str] = {"count": str(count), "generation": "0"}
        for index, (uuid, called) in enumerate(zip(self.uuids, names, strict=True)):
            self._values |= {f"uuid.{index}": uuid, f"name.{index}": called}
        for index, slices in (mig or {}).items():
            self._add_mig(index, slices)
        self._values["period_ms"] = repr(period_s * 1e3)
        self._counters = [(base_j, watts, time.time())] * count
        self._write()

    def env(self) -> dict[str, str]:
        """Variables for the process that shall see the stub."""
        path = os.environ.get("LD_LIBRARY_PATH", "")
        return {
            "LD_LIBRARY_PATH": str(self.library.parent) + (f":{path}" if path else ""),
            "NVML_STUB_CONTROL": str(self._control),
        }

    # --- what devices do --------------------------------------------------------------------

    def counter_j(self, at_s: float | None = None, *, index: int = 0) -> float:
        """What a device has used by now (or ``at_s``, wall clock), without the period."""
        base_j, watts, since_s = self._counters[index]
        return base_j + watts * ((time.time() if at_s is None else at_s) - since_s)

    def set_power(self, watts: float, *, index: int | None = None) -> None:
        """Change the power from now on; the counter goes on from where it stands."""
        now_s = time.time()
        for each in self._indices(index):
            self._counters[each] = (self.counter_j(now_s, index=each), watts, now_s)
        self._write()

    def set_counter(self, energy_j: float, *, index: int | None = None) -> None:
        """Make the counter jump."""
        for each in self._indices(index):
            self._counters[each] = (energy_j, self._counters[each][1], time.time())
        self._write()

    def set(self, key: str, value: float, *, index: int | None = None) -> None:
        """Set another value by its key in ``nvml_stub.c`` (``gpu_percent``, ``power_min_mw``)."""
        self._values[key if index is None else f"{key}.{index}"] = repr(value)
        self._write()

    # --- failures ---------------------------------------------------------------------------

    def set_error(self, function: str, code: int, *, index: int | None = None) -> None:
        """Make a C function (``nvmlDeviceGetTotalEnergyConsumption``) answer ``code``.

        ``field.185`` instead of a function means that field of ``nvmlDeviceGetFieldValues``.
        """
        suffix = "" if index is None else f".{index}"
        self._values[f"error.{function}{suffix}"] = str(code)
        self._write()

    def clear_errors(self) -> None:
        """Take back every :meth:`set_error`."""
        self._values = {k: v for k, v in self._values.items() if not k.startswith("error.")}
        self._write()

    def reload_driver(self) -> None:
        """Make every call fail until the process initialises NVML again; limits are lost."""
        self._state.unlink(missing_ok=True)
        self._values["generation"] = str(int(self._values["generation"]) + 1)
        self._write()

    # --- what processes have set ------------------------------------------------------------

    def power_limit_w(self, index: int = 0) -> float | None:
        """The power limit that somebody set; ``None``: nobody did."""
        text = self._set_values().get(f"power_limit_mw.{index}", "")
        return float(text) * 1e-3 if text else None

    def locked_clocks_mhz(self, index: int = 0) -> tuple[int, int] | None:
        """Lowest and highest GPU clock that somebody locked; ``None``: not locked."""
        text = self._set_values().get(f"locked_gpu_mhz.{index}", "").split()
        return (int(text[0]), int(text[1])) if text else None

    def set_power_limit(self, watts: float, *, index: int = 0) -> None:
        """Set the limit as an operator does beside the process."""
        self._append(f"power_limit_mw.{index}={round(watts * 1e3)}")

    def lock_clocks(self, low_mhz: int, high_mhz: int, *, index: int = 0) -> None:
        """Lock the GPU clock as an operator does beside the process."""
        self._append(f"locked_gpu_mhz.{index}={low_mhz} {high_mhz}")

    def changes(self) -> list[str]:
        """Everything that was set since the start or the last reload, in order (``key=value``)."""
        return self._state.read_text().splitlines() if self._state.exists() else []

    def _set_values(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.changes())

    def _append(self, line: str) -> None:
        with self._state.open("a") as file:
            file.write(line + "\n")

    # --- the control file -------------------------------------------------------------------

    def _add_mig(self, index: int, slices: Sequence[MigSlice]) -> None:
        self._values[f"mig.{index}"] = "1"
        for number, each in enumerate(slices):
            key = f"mig.{index}.{number}"
            compute = each.slices if each.compute_slices is None else each.compute_slices
            self._values |= {
                key: each.uuid,
                f"{key}.gi": str(each.gpu_instance),
                f"{key}.ci": str(each.compute_instance),
                f"{key}.gi_slices": str(each.slices),
                f"{key}.ci_slices": str(compute),
            }

    def _indices(self, index: int | None) -> Sequence[int]:
        return range(len(self._counters)) if index is None else (index,)

    def _write(self) -> None:
        values = dict(self._values)
        for index, (base_j, watts, at_s) in enumerate(self._counters):
            values |= {
                f"base_mj.{index}": repr(base_j * 1e3),
                f"watts.{index}": repr(watts),
                f"at_ms.{index}": repr(at_s * 1e3),
            }
        # Replaced in one move: a process that reads sees the old file or the new one.
        draft = self._control.with_suffix(".draft")
        draft.write_text("".join(f"{k}={v}\n" for k, v in values.items()))
        os.replace(draft, self._control)
