"""The RAPL zones of the kernel's powercap tree, and which of them to count.

Zones overlap: ``psys`` holds the packages, a package holds ``core`` and ``uncore``, and the same
package is listed once more under ``intel-rapl-mmio`` (FIELD E7). What is counted is each package
once and, beside it, its DRAM. AMD's counters stand in the same tree under the same names.
(Names: Linux, Documentation/power/powercap/powercap.rst and drivers/powercap/intel_rapl_*.c.)
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import msgspec

POWERCAP = Path("/sys/class/powercap")
CPUS = Path("/sys/devices/system/cpu")

_ZONE = re.compile(r"(?P<control>intel-rapl|intel-rapl-mmio):(?P<index>\d+)(?P<part>:\d+)?$")
_PACKAGE = re.compile(r"package-(?P<package>\d+)")
_PLATFORM = "psys"


class Zone(msgspec.Struct, frozen=True):
    """One counter. ``package`` is the socket's number, ``None`` for the whole platform."""

    folder: Path
    name: str
    package: int | None

    @property
    def file(self) -> Path:
        """The counter, in microjoules."""
        return self.folder / "energy_uj"

    def read_uj(self) -> int:
        """Where the counter stands; raises ``OSError`` or ``ValueError``."""
        return int(self.file.read_text())

    def range_uj(self) -> int | None:
        """The value after which the counter begins again at zero; ``None``: it is not told."""
        try:
            return int((self.folder / "max_energy_range_uj").read_text()) or None
        except (OSError, ValueError):
            return None


def zones_of(cpus: Collection[int], *, powercap: Path = POWERCAP, tree: Path = CPUS) -> list[Zone]:
    """The zones that hold ``cpus``, without overlap: packages and their DRAM (FIELD E10).

    The MMIO copies count only where there is no other, the platform only where no package is
    listed at all.
    """
    listed = _listed(powercap)
    packages = [zone for zone in listed if zone.package is not None]
    if not packages:
        return [zone for zone in listed if zone.name == _PLATFORM][:1]
    wanted = packages_of(cpus, tree)
    return [zone for zone in packages if wanted is None or zone.package in wanted]


def packages_of(cpus: Collection[int], tree: Path = CPUS) -> set[int] | None:
    """The sockets that hold ``cpus``; ``None`` where the kernel does not tell."""
    try:
        return {_package_of(tree / f"cpu{cpu}") for cpu in cpus}
    except (OSError, ValueError):
        return None


def cpus_of(packages: Collection[int], tree: Path = CPUS) -> set[int] | None:
    """All CPUs of the sockets; ``None`` where the kernel does not tell."""
    folders = [folder for folder in tree.glob("cpu[0-9]*") if folder.name[3:].isdigit()]
    try:
        return {int(f.name[3:]) for f in folders if _package_of(f) in packages} or None
    except (OSError, ValueError):
        return None


def _package_of(cpu: Path) -> int:
    return int((cpu / "topology" / "physical_package_id").read_text())


def _listed(powercap: Path) -> list[Zone]:
    """Packages, their DRAM, and the platform; of two controls that list a package, the first."""
    found: dict[str, Zone] = {}
    folders = powercap.iterdir() if powercap.is_dir() else ()
    matches = [(match, folder) for folder in folders if (match := _ZONE.match(folder.name))]
    matches.sort(
        key=lambda each: (each[0]["control"], int(each[0]["index"]), each[0]["part"] or "")
    )
    names = {folder.name: _name(folder) for _, folder in matches}
    for match, folder in matches:
        name = names[folder.name]
        parent = names.get(f"{match['control']}:{match['index']}", "")
        package = _PACKAGE.match(parent)
        if match["part"]:
            if name == "dram" and package:
                found.setdefault(f"{parent} dram", Zone(folder, f"{parent} dram", int(package[1])))
        elif package:
            found.setdefault(name, Zone(folder, name, int(package[1])))
        elif name == _PLATFORM:
            found.setdefault(name, Zone(folder, name, None))
    return list(found.values())


def _name(folder: Path) -> str:
    try:
        return (folder / "name").read_text().strip()
    except OSError:
        return ""
