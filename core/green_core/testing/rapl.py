"""A powercap tree and the CPU topology beside it, for machines without RAPL.

tree = RaplTree(tmp_path, packages=2)
rapl_meters(engine, powercap=tree.powercap, tree=tree.cpus, ...)
tree.add_j("package-0", 12.5)        # the counter moves, and begins again after its range
"""

from __future__ import annotations

from pathlib import Path

RANGE_UJ = 262_143_328_850  # what most Intel packages show: 32 bits of 61 microjoules


class RaplTree:
    """``packages`` sockets of ``cores`` CPUs each. Zones are named as the kernel names them.

    Each package has ``core`` and ``dram`` below it; ``psys`` and ``mmio`` add the whole platform
    and the MMIO copies of the packages. A name's copies move together.
    """

    def __init__(
        self,
        folder: Path,
        *,
        packages: int = 1,
        cores: int = 2,
        dram: bool = True,
        psys: bool = False,
        mmio: bool = False,
        range_uj: int | None = RANGE_UJ,
    ) -> None:
        self.powercap = folder / "powercap"
        self.cpus = folder / "cpu"
        self.range_uj = range_uj
        self._values_uj: dict[str, int] = {}
        (self.powercap / "intel-rapl").mkdir(parents=True)
        self.cpus.mkdir()
        for number in range(packages):
            self._zone(f"intel-rapl:{number}", f"package-{number}", f"package-{number}")
            self._zone(f"intel-rapl:{number}:0", "core", f"core-{number}")
            if dram:
                self._zone(f"intel-rapl:{number}:1", "dram", f"dram-{number}")
            if mmio:
                self._zone(f"intel-rapl-mmio:{number}", f"package-{number}", f"package-{number}")
            for core in range(number * cores, (number + 1) * cores):
                topology = self.cpus / f"cpu{core}" / "topology"
                topology.mkdir(parents=True)
                (topology / "physical_package_id").write_text(f"{number}\n")
        if psys:
            self._zone(f"intel-rapl:{packages}", "psys", "psys")

    def add_j(self, name: str, joules: float) -> None:
        """Move a counter: ``package-0``, ``core-0``, ``dram-0``, ``psys``."""
        value_uj = self._values_uj[name] + round(joules * 1e6)
        self.set_uj(name, value_uj % (self.range_uj or RANGE_UJ))

    def set_uj(self, name: str, value_uj: int) -> None:
        """Make a counter show a value."""
        self._values_uj[name] = value_uj
        for file in self._files[name]:
            if file.is_file():
                file.write_text(f"{value_uj}\n")

    def forbid(self, name: str) -> None:
        """Make a counter unreadable. A folder takes its place, since root may read any file."""
        for file in self._files[name]:
            file.unlink()
            file.mkdir()

    @property
    def _files(self) -> dict[str, list[Path]]:
        files: dict[str, list[Path]] = {}
        for zone in self.powercap.iterdir():
            if (zone / "double").exists():
                files.setdefault((zone / "double").read_text(), []).append(zone / "energy_uj")
        return files

    def _zone(self, folder: str, name: str, double: str) -> None:
        zone = self.powercap / folder
        zone.mkdir()
        (zone / "name").write_text(f"{name}\n")
        (zone / "double").write_text(double)
        if self.range_uj is not None:
            (zone / "max_energy_range_uj").write_text(f"{self.range_uj}\n")
        (zone / "energy_uj").write_text("0\n")
        self._values_uj.setdefault(double, 0)
