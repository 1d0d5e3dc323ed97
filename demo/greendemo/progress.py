"""Progress for people (one line that is rewritten) and for logs (a line now and then)."""

from __future__ import annotations

import sys
import time
from typing import TextIO

LOG_EVERY_S = 10.0


class Progress:
    """Says what goes on."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._rewrites = self._stream.isatty()
        self._shown_s = -LOG_EVERY_S
        self._width = 0

    def tell(self, text: str) -> None:
        """A passing state."""
        if self._rewrites:
            self._write(f"\r{text.ljust(self._width)}")
            self._width = len(text)
        elif time.monotonic() - self._shown_s >= LOG_EVERY_S:
            self._shown_s = time.monotonic()
            self._write(text + "\n")

    def say(self, text: str) -> None:
        """Something that stays."""
        if self._rewrites and self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0
        self._shown_s = time.monotonic()
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
