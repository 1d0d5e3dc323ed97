"""Several meters as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from green_core.values import Meter, MeterReading


def combine(meters: Sequence[Meter]) -> Meter:
    """One meter over several devices: their sum, and a gap when any of them has one.

    Methods are joined by ``+``. The uncertainty is the largest of any, which the sum's cannot
    exceed, and unknown as soon as one is. Raises ``ValueError`` for no meters.
    """
    if len(meters) == 1:
        return meters[0]

    restarted = False  # a part did, and it was not told yet
    seen_s: list[float | None] = [None] * len(meters)

    def read() -> MeterReading | None:
        nonlocal restarted
        # All are asked, so that each one's power integral and retries go on.
        readings = [meter.read() for meter in meters]
        good = [reading for reading in readings if reading is not None]
        for number, reading in enumerate(readings):
            if reading is not None:  # a slow meter shows the same reading several times
                restarted |= reading.restarts and reading.at_s != seen_s[number]
                seen_s[number] = reading.at_s
        if len(good) < len(readings):
            return None
        restarts, restarted = restarted, False
        changed = any(reading.method for reading in good)
        return MeterReading(
            at_s=max(reading.at_s for reading in good),
            energy_j=sum(reading.energy_j for reading in good),
            method=_join(r.method or m.method for r, m in zip(good, meters, strict=True))
            if changed
            else None,
            restarts=restarts,
        )

    def close() -> None:
        for meter in meters:
            meter.close()

    errors = [meter.uncertainty_ratio for meter in meters]
    known = [error for error in errors if error is not None]
    return Meter(
        name=",".join(meter.name for meter in meters),
        method=_join(meter.method for meter in meters),
        period_s=max(meter.period_s for meter in meters),
        read=read,
        close=close,
        uncertainty_ratio=max(known) if len(known) == len(errors) else None,
        note_work=_forward([meter.note_work for meter in meters if meter.note_work is not None]),
        rest_j=_sum([meter.rest_j for meter in meters if meter.rest_j is not None]),
        is_absolute=all(meter.is_absolute for meter in meters),
    )


def _join(methods: Iterable[str]) -> str:
    return "+".join(sorted(set(methods)))


def _forward(listeners: list[Callable[[float], None]]) -> Callable[[float], None] | None:
    def note_work(joules: float) -> None:
        for listener in listeners:
            listener(joules)

    return note_work if listeners else None


def _sum(parts: list[Callable[[], float]]) -> Callable[[], float] | None:
    return (lambda: sum(part() for part in parts)) if parts else None
