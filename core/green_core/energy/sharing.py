"""Several engine processes on one device: what they are given adds up to its counter (FIELD E8).

Each process holds a seat at the device's board, a small file that is only changed under a lock.
A seat is taken as long as its process lives: the kernel drops the seat's lock however the process
ends. Who sits alone gets every joule as the counter shows it. Several divide what the counter
moved since the last division by the work that each noted since then, in joules of its own step
model, or equally when nobody worked.

A division waits until every process that is at work has noted its part, but no longer than
``PATIENCE_S``, so an idle process need not look: it finds what was divided meanwhile when it does.
The share of a process that left goes to nobody else. The scope is one user on one machine (or in
one container): processes that cannot see each other's folder cannot be known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec

from green_core.clock import SteadyClock
from green_core.energy.board import Board, BoardFiles, Seat
from green_core.errors import GreenError, MeterUnavailable
from green_core.locks import runtime_folder
from green_core.values import Meter, MeterReading

DIVISION_PERIOD_S = 0.5  # a board is divided no more often
PATIENCE_S = 3.0
_JOIN_WAIT_S, _READ_WAIT_S = 2.0, 0.05  # for the board's lock
_STALE_S = 60.0  # how long a process may be shown an older state of the counter than others
_SAME_S = 1e-3


def share(
    meter: Meter,
    *,
    folder: Path | None = None,
    now_s: Callable[[], float] | None = None,
    steady_s: Callable[[], float] = time.monotonic,
) -> Meter:
    """``meter`` as one of those that may share its device.

    ``now_s`` is the clock of the meter's readings; ``steady_s`` must be the same clock in every
    process. Raises ``MeterUnavailable``, with ``meter`` closed, when another process reads the
    device in another way, or the folder cannot be used.
    """
    try:
        find = _shares_folder if folder is None else partial(_made, folder)
        desk = _Desk(meter, find, now_s or SteadyClock().now, steady_s)
        desk.join()
    except BaseException as error:
        meter.close()
        if isinstance(error, OSError | GreenError) and not isinstance(error, MeterUnavailable):
            remedy = ". Set XDG_RUNTIME_DIR to a writable folder of your own"
            raise MeterUnavailable(
                f"The board on which processes share {meter.name} cannot be used: {error}"
                f"{remedy if isinstance(error, OSError) else ''}"  # others name theirs
            ) from error
        raise
    return msgspec.structs.replace(
        meter, read=desk.read, close=desk.leave, note_work=desk.note_work, rest_j=desk.rest_j
    )


def shared_method(method: str) -> str:
    """``method`` as it is written on a value that was divided between processes."""
    return f"{method[:-1]}, shared)" if method.endswith(")") else f"{method}(shared)"


def _shares_folder() -> Path:
    return _made(runtime_folder() / "shares")


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


class _Alone(msgspec.Struct, frozen=True):
    """Where we stood at the last reading alone: work noted, and what the counter had moved."""

    work_j: float
    moved_j: float


class _Desk:
    """One process at the board of one device. For one thread, apart from ``rest_j``."""

    def __init__(
        self,
        meter: Meter,
        find_folder: Callable[[], Path],
        now_s: Callable[[], float],
        steady_s: Callable[[], float],
    ) -> None:
        self._meter = meter
        self._method = shared_method(meter.method)
        self._now_s = now_s
        self._steady_s = steady_s
        self._id = f"{os.getpid()}-{uuid4().hex[:8]}"
        self._find_folder = find_folder
        self._files = BoardFiles(find_folder(), meter.name)
        self._life = self._files.life(self._id)
        self._board = Board(meter.method)  # as on disk when we last looked
        self._work_j = 0.0  # as noted by our books
        self._base_j = 0.0  # our reading when we had been given nothing
        self._raw: MeterReading | None = None  # newest of the meter
        self._last: MeterReading | None = None  # newest that we answered
        self._fell = False  # the counter fell, and the board does not know yet
        self._alone: _Alone | None = None
        self._seen = (0, 0.0)  # newest division, and our own counter when we first saw it
        self._resets = 0  # those that we have told
        self._since_total_j = 0.0
        self._kept_out_s: float | None = None  # since when somebody keeps the board locked

    def note_work(self, joules: float) -> None:
        """The step model's joules of this process so far."""
        self._work_j = joules

    def rest_j(self) -> float:
        """What others were given since we came."""
        board = self._board
        seat = board.seats.get(self._id)
        return max(0.0, board.total_j - self._since_total_j - (seat.given_j if seat else 0.0))

    def read(self) -> MeterReading | None:
        """Our own cumulative joules: the counter itself while we sit alone."""
        raw = self._meter.read()
        if raw is not None:
            last = self._raw
            if last is not None and raw.at_s != last.at_s:
                self._fell |= raw.restarts or raw.energy_j < last.energy_j
            self._raw = raw
        try:
            counter_j = self._board.counter_j
            if self._fell or counter_j is None or not self._files.unchanged():
                return self._at_board(raw)
            if len(self._board.seats) == 1:
                return self._by_myself(raw, counter_j)
            if self._age_s() < DIVISION_PERIOD_S:
                return self._last
            return self._at_board(raw)
        except (OSError, GreenError):
            return None

    def leave(self) -> None:
        """Let go of the seat and the meter. Who stays settles what is owed to the seat."""
        self._life.release()
        self._meter.close()

    def join(self) -> None:
        """Take a seat; raises ``MeterUnavailable`` or ``OSError``."""
        raw = self._meter.read()
        if not self._files.lock.acquire(wait_s=_JOIN_WAIT_S):
            raise OSError(f"{self._files.lock.path} stays locked")
        try:
            self._life.acquire()
            board = self._files.load() or Board(self._meter.method)
            living = self._living(board)
            self._refuse_others(board, living)
            if not living:  # what the counter moved since is nobody's
                self._files.forget(board.seats)
                board = Board(self._meter.method)
                self._stand(board, raw)
            self._sit_down(board, living, raw)
        except BaseException:
            self._life.release()
            raise
        finally:
            self._files.lock.release()

    def _sit_down(self, board: Board, living: set[str], raw: MeterReading | None) -> None:
        mine = board.seats[self._id] = Seat(os.getpid())
        self._store(board)
        if living and self._meter.is_absolute:
            # Read anew now that everybody can see our seat: who sat alone until now has shown
            # no more than this.
            raw = self._meter.read() or raw
            counter_j = board.counter_j
            if raw is not None and counter_j is not None and raw.energy_j >= counter_j:
                del board.seats[self._id]
                self._divide(board, raw, raw.energy_j - counter_j, living)
                board.seats[self._id] = mine
        for seat in board.seats.values():  # it may be at work, and had no reason to say so
            seat.is_busy = True
        board.divided_s = self._steady_s()
        self._store(board)
        self._begin(board, raw)
        self._last = MeterReading(raw.at_s, self._base_j) if raw else None

    def _begin(self, board: Board, raw: MeterReading | None) -> None:
        """Count what we are given from here on."""
        self._raw = raw
        self._base_j = raw.energy_j if raw else 0.0
        self._seen = (board.divisions, self._base_j)
        self._resets = board.resets
        self._since_total_j = board.total_j

    def _refuse_others(self, board: Board, living: set[str]) -> None:
        if living and board.method != self._meter.method:
            pids = ", ".join(sorted({str(board.seats[name].pid) for name in living}))
            raise MeterUnavailable(
                f"Device {self._meter.name} is already metered by process {pids} as "
                f'"{board.method}", here it would be "{self._meter.method}". Set the same '
                'energy.meter for all engines on it, or energy.meter = "model" here'
            )

    def _by_myself(self, raw: MeterReading | None, counter_j: float) -> MeterReading | None:
        if raw is None:
            return None
        moved_j = raw.energy_j - counter_j
        self._alone = _Alone(self._work_j, moved_j)
        return self._answer(raw.at_s, self._board.seats[self._id].given_j + moved_j, None)

    def _at_board(self, raw: MeterReading | None) -> MeterReading | None:
        if not self._files.lock.path.parent.is_dir():  # swept away, maybe with all that held it
            self._files = BoardFiles(self._find_folder(), self._meter.name)
        if not self._files.lock.acquire(wait_s=_READ_WAIT_S):
            return self._kept_out()
        self._kept_out_s = None
        try:
            self._show_life()
            board = self._visit(raw)
        finally:
            self._files.lock.release()
        if board.counter_j is None:
            return None
        at_s = self._now_s() - (self._steady_s() - board.at_s)
        stands = raw is None or raw.at_s - at_s > 2.0 * PATIENCE_S
        if stands and self._age_s() > 2.0 * PATIENCE_S:
            return None  # nobody has a counter that moves
        return self._answer(at_s, board.seats[self._id].given_j, self._method)

    def _visit(self, raw: MeterReading | None) -> Board:
        """Note our work and divide if that is due; answers the board as it is then."""
        before = vars(self).copy()
        try:
            board = self._files.load()
            if board is None or self._id not in board.seats:
                board = self._sit_again(board, raw)
            self._board = board.copy()
            seat = board.seats[self._id]
            was_alone = self._cash_in(board, seat, raw)
            if self._seen[0] != board.divisions and raw is not None:
                self._seen = (board.divisions, raw.energy_j)
            if self._age_s() >= DIVISION_PERIOD_S:
                seat.note(self._work_j, board.divisions)
            if raw is not None:
                self._divide_if_due(board, raw, was_alone)
            self._store(board)
        except OSError:
            vars(self).update(before)  # nobody else has seen it, so it did not happen
            raise
        return board

    def _show_life(self) -> None:
        """Old files are swept away: without ours, others would take us for dead."""
        life = self._files.life(self._id)
        if not life.path.exists():
            self._life.release()
            self._life = life
            life.acquire()

    def _kept_out(self) -> MeterReading | None:
        """What to answer while the board is locked: who holds it may have been stopped for good."""
        now_s = self._steady_s()
        if self._kept_out_s is None:
            self._kept_out_s = now_s
        return self._last if now_s - self._kept_out_s <= _STALE_S else None

    def _sit_again(self, board: Board | None, raw: MeterReading | None) -> Board:
        """Our seat was lost (a cleaned folder): begin anew, and say that it is a gap."""
        if board is None:
            board = Board(self._meter.method)
            self._stand(board, raw)
        board.seats[self._id] = Seat(os.getpid(), paid_j=self._work_j)
        self._begin(board, raw or self._raw)
        self._alone, self._fell = None, False
        self._resets -= 1  # the next answer tells
        return board

    def _cash_in(self, board: Board, seat: Seat, raw: MeterReading | None) -> bool:
        """Settle a time alone that has just ended; answers whether there was one."""
        alone, self._alone = self._alone, None
        if alone is None:
            return False
        seat.paid_j = alone.work_j
        moved_j, counter_j = alone.moved_j, board.counter_j
        if board.reader != self._id or counter_j is None:
            if self._meter.is_absolute:  # who joined read the same counter and gave us all
                return True
        elif self._meter.is_absolute or raw is None:
            board.counter_j = counter_j + moved_j
        else:  # nobody else can tell what our sum was when they came: it is ours up to now
            moved_j = max(moved_j, raw.energy_j - counter_j)
            self._stand(board, raw)
            board.divisions += 1
        self._base_j += moved_j
        return True

    def _divide_if_due(self, board: Board, raw: MeterReading, was_alone: bool) -> None:
        fell, self._fell = self._fell, False
        if board.counter_j is None:
            self._stand(board, raw)
            return
        moved_j = raw.energy_j - board.counter_j
        age_s = self._age_s()
        living = self._living(board)
        if not self._meter.is_absolute and board.reader != self._id:
            if fell:
                self._seen = (board.divisions, raw.energy_j)
                self._resets -= raw.restarts  # the next answer tells
            if board.reader in living and age_s < PATIENCE_S:
                return
            # A sum that began with us cannot be compared with the reader's: we take over.
            moved_j = raw.energy_j - self._seen[1]
        elif (fell and (was_alone or raw.restarts or moved_j < 0.0)) or (
            moved_j < 0.0 and age_s > _STALE_S
        ):
            self._stand(board, raw)
            board.resets += 1
            return
        if len(living) > 1 and (
            moved_j <= 0.0
            or age_s < DIVISION_PERIOD_S
            or (age_s < PATIENCE_S and not board.all_noted(living))
        ):
            return
        if moved_j >= 0.0:  # below: others have seen a newer state of the counter
            self._divide(board, raw, moved_j, living)

    def _divide(self, board: Board, raw: MeterReading, moved_j: float, living: set[str]) -> None:
        self._files.forget(set(board.seats) - living)
        board.divide(moved_j, living)
        self._stand(board, raw)
        self._seen = (board.divisions, raw.energy_j)

    def _stand(self, board: Board, raw: MeterReading | None) -> None:
        steady_s = self._steady_s()
        age_s = self._now_s() - raw.at_s if raw else 0.0
        counter_j = raw.energy_j if raw else None
        board.stand(self._id, counter_j, at_s=steady_s - age_s, now_s=steady_s)

    def _answer(self, at_s: float, given_j: float, method: str | None) -> MeterReading:
        """Never falls back in time or energy, unless the counter began anew."""
        energy_j, last, board = self._base_j + given_j, self._last, self._board
        restarts, self._resets = self._resets != board.resets, board.resets
        if last is not None and not restarts:
            if method and at_s - last.at_s < _SAME_S:  # the same division, told again
                return last
            if at_s < last.at_s or energy_j < last.energy_j:
                return last
        self._last = MeterReading(at_s, energy_j, method, restarts)
        return self._last

    def _store(self, board: Board) -> None:
        self._files.store(board)
        self._board = board.copy()

    def _age_s(self) -> float:
        return abs(self._steady_s() - self._board.divided_s)

    def _living(self, board: Board) -> set[str]:
        return {n for n in board.seats if n == self._id or self._files.is_alive(n)}
