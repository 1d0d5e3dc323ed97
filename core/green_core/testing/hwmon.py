"""A hwmon tree, for machines without power sensors."""

from __future__ import annotations

from pathlib import Path


class HwmonTree:
    """Chips with power sensors, below ``root``."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "hwmon"
        self.root.mkdir()

    def add(
        self,
        chip: str,
        *,
        watts: float,
        label: str = "",
        ending: str = "input",
        below_device: bool = False,
    ) -> Path:
        """Add a chip with one channel; answers the sensor's file.

        ``ending`` is ``input`` (a moment) or ``average``; some drivers put their files
        ``below_device``.
        """
        folder = self.root / f"hwmon{len(list(self.root.iterdir()))}"
        sensors = folder / "device" if below_device else folder
        sensors.mkdir(parents=True)
        (folder / "name").write_text(f"{chip}\n")
        if label:
            (sensors / "power1_label").write_text(f"{label}\n")
        file = sensors / f"power1_{ending}"
        self.set(file, watts)
        return file

    def set(self, file: Path, watts: float) -> None:
        """Change what a sensor shows."""
        file.write_text(f"{round(watts * 1e6)}\n")
