"""A machine's ``/sys`` and ``/proc`` in a folder, for ``host_facts`` and ``process_facts``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


class FakeHost:
    """Writes the files that a kernel would show below ``root``; what is not written is missing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, content: str | bytes) -> None:
        """Write one file by its absolute path (``/proc/cpuinfo``)."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def cpus(
        self, count: int, *, flags: Iterable[str] = ("fpu", "avx2"), name: str = "flags"
    ) -> None:
        """``count`` CPUs online with these features (on arm64 their name is ``Features``)."""
        self.write("/sys/devices/system/cpu/online", f"0-{count - 1}\n" if count > 1 else "0\n")
        block = f"{name}\t\t: {' '.join(flags)}\n\n"
        self.write("/proc/cpuinfo", "".join(f"processor\t: {i}\n{block}" for i in range(count)))

    def node(self, number: int, cpus: str) -> None:
        """A NUMA node with the CPUs of a kernel list (``0-7,16-23``); empty: memory alone."""
        self.write(f"/sys/devices/system/node/node{number}/cpulist", cpus + "\n")

    def frequency(self, cpu: int, *, governor: str, driver: str) -> None:
        """What cpufreq shows for one CPU."""
        folder = f"/sys/devices/system/cpu/cpu{cpu}/cpufreq"
        self.write(f"{folder}/scaling_governor", governor + "\n")
        self.write(f"{folder}/scaling_driver", driver + "\n")

    def machine(self, *, maker: str = "", product: str = "") -> None:
        """What the firmware calls it."""
        self.write("/sys/class/dmi/id/sys_vendor", maker + "\n")
        self.write("/sys/class/dmi/id/product_name", product + "\n")

    def process(
        self,
        pid: int,
        *,
        name: str = "python3",
        user_ticks: int = 0,
        system_ticks: int = 0,
        threads: int = 1,
        start_ticks: int = 0,
        cpus: str = "0",
        environment: Mapping[str, str] | None = None,
        boot_s: int = 1_000_000_000,
    ) -> None:
        """A running process; times in clock ticks, as proc(5) has them."""
        tail = f"S 1 {'0 ' * 9}{user_ticks} {system_ticks} 0 0 20 0 {threads} 0 {start_ticks}"
        self.write(f"/proc/{pid}/stat", f"{pid} ({name}) {tail} 0 0 0\n")
        self.write(f"/proc/{pid}/status", f"Name:\t{name}\nCpus_allowed_list:\t{cpus}\n")
        entries = (environment or {}).items()
        self.write(f"/proc/{pid}/environ", "".join(f"{key}={value}\0" for key, value in entries))
        self.write("/proc/stat", f"cpu 0 0 0 0\nbtime {boot_s}\n")
