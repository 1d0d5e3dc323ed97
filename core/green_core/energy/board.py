"""The board of a shared device: who sits at it, how its energy is divided, and its files."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

import msgspec

from green_core.locks import FileLock


class Seat(msgspec.Struct):
    """One process. ``given_j`` is what it got so far.

    ``work_j`` is the work it has noted (joules of its step model), ``paid_j`` the part of it that
    divisions have paid for, ``noted`` the division after which it noted last. ``is_busy``: it
    was at work in the stretch before, or may have been: the next division waits for its note.
    """

    pid: int
    given_j: float = 0.0
    work_j: float = 0.0
    paid_j: float = 0.0
    noted: int = -1
    is_busy: bool = True

    def note(self, work_j: float, division: int) -> None:
        """Note the work done by now."""
        self.work_j = max(self.work_j, work_j, self.paid_j)
        self.noted = division


class Board(msgspec.Struct):
    """State of one shared device. Times are of the machine's steady clock, energy in joules.

    ``counter_j`` is the counter at the last division, as ``reader`` read it (``None``: nobody could
    yet), ``at_s`` the instant it stands for and ``divided_s`` when that was; ``total_j`` is all
    that was divided so far.
    ``resets`` counts how often the counter began anew.
    """

    method: str
    reader: str = ""
    counter_j: float | None = None
    at_s: float = 0.0
    divided_s: float = 0.0
    divisions: int = 0
    resets: int = 0
    total_j: float = 0.0
    seats: dict[str, Seat] = {}

    def copy(self) -> Board:
        """A board of its own, seats included."""
        seats = {name: msgspec.structs.replace(seat) for name, seat in self.seats.items()}
        return msgspec.structs.replace(self, seats=seats)

    def all_noted(self, names: Collection[str]) -> bool:
        """Whether each of ``names`` that was at work has noted since the last division."""
        seats = (self.seats[name] for name in names)
        return all(seat.noted == self.divisions for seat in seats if seat.is_busy)

    def give(self, seat: Seat, joules: float) -> None:
        """Give joules that only ``seat`` has a claim to."""
        seat.given_j += joules
        self.total_j += joules

    def divide(self, joules: float, living: Collection[str]) -> None:
        """Divide by the work noted since the last time; equally over ``living`` without any.

        Who is not among the living gets what its work is worth and loses its seat.
        """
        work_j = {name: max(0.0, seat.work_j - seat.paid_j) for name, seat in self.seats.items()}
        all_j = sum(work_j.values())
        for name, seat in self.seats.items():
            if all_j > 0.0:
                self.give(seat, joules * (work_j[name] / all_j))
            elif name in living:
                self.give(seat, joules / len(living))
            seat.paid_j = max(seat.paid_j, seat.work_j)
            seat.is_busy = work_j[name] > 0.0
        self.seats = {name: seat for name, seat in self.seats.items() if name in living}
        self.divisions += 1

    def stand(self, reader: str, counter_j: float | None, *, at_s: float, now_s: float) -> None:
        """Note where the counter stands from which the next division counts."""
        self.reader, self.counter_j, self.at_s, self.divided_s = reader, counter_j, at_s, now_s


class BoardFiles:
    """A device's board on disk: written by rename while ``lock`` is held.

    Each seat has a lock of its own (:meth:`life`), held by its process for as long as it lives.
    """

    def __init__(self, folder: Path, device: str) -> None:
        self._stem = folder / quote(device, safe="")
        self._path = self._beside("json")
        self.lock = FileLock(self._beside("lock"))
        self._image = b""  # as we last read or wrote it

    def unchanged(self) -> bool:
        """Whether the board on disk is the one that we read or wrote last."""
        return bool(self._image) and self._image == self._read()

    def load(self) -> Board | None:
        """The board on disk; ``None`` when there is none that makes sense."""
        self._image = self._read()
        try:
            return msgspec.json.decode(self._image, type=Board)
        except msgspec.MsgspecError:
            return None

    def store(self, board: Board) -> None:
        """Write ``board`` if it differs from what is on disk."""
        image = msgspec.json.encode(board)
        if image != self._image:
            draft = self._beside("draft")
            draft.write_bytes(image)
            draft.replace(self._path)
            self._image = image

    def life(self, seat: str) -> FileLock:
        """The lock that its process holds."""
        return FileLock(self._beside(f"{seat}.live"))

    def is_alive(self, seat: str) -> bool:
        """Whether the process of another's seat still lives."""
        life = self.life(seat)
        if not life.path.exists() or life.acquire():
            life.release()
            return False
        return True

    def forget(self, seats: Collection[str]) -> None:
        """Remove what the dead have left."""
        for seat in seats:
            self.life(seat).path.unlink(missing_ok=True)

    def _read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def _beside(self, ending: str) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{ending}")
