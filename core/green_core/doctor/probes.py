"""Looks at engines and meters that are installed here, each in a process of its own.

Importing an engine takes up to a minute, may end the process (an instruction that the CPU lacks),
and a driver opened here would be inherited by whatever this process starts (FIELD E16).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from typing import TypeVar

import msgspec

from green_core.doctor.report import EngineReport, MeterReport
from green_core.energy.build import METERS

T = TypeVar("T")
ENGINES = "greenserve.engines"
ENGINE_S = 180.0
METER_S = 30.0
_CHILD = "green_core.doctor.child"


class _Failed(Exception):
    """A probe that gave no answer."""


def engines(*, timeout_s: float = ENGINE_S) -> tuple[EngineReport, ...]:
    """The engines that are installed here, as their adapters see them."""
    names = sorted({entry.name for entry in entry_points(group=ENGINES)})

    def look(name: str) -> EngineReport:
        try:
            return _ask(EngineReport, "engine", name, timeout_s=timeout_s)
        except _Failed as failure:
            return EngineReport(name, problem=str(failure))

    found = _each(look, names)
    return tuple(engine for engine in found if engine.version or engine.problem)


def meters(
    *, config: str | None, names: tuple[str, ...] = METERS, timeout_s: float = METER_S
) -> tuple[MeterReport, ...]:
    """Whether each of these meters could be read here, with the ``config`` file in use."""

    def look(name: str) -> MeterReport:
        try:
            return _ask(MeterReport, "meter", name, config or "", timeout_s=timeout_s)
        except _Failed as failure:
            return MeterReport(name, problem=str(failure))

    return _each(look, names)


def _each(look: Callable[[str], T], names: tuple[str, ...] | list[str]) -> tuple[T, ...]:
    with ThreadPoolExecutor(max_workers=4) as pool:
        return tuple(pool.map(look, names))


def _ask(kind: type[T], *arguments: str, timeout_s: float) -> T:
    """The child's answer; what engines print goes elsewhere, see :mod:`green_core.doctor.child`."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", _CHILD, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that its own children end with it
    )
    with child:
        try:
            answer, words = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            raise _Failed(f"gave no answer within {timeout_s:g} s") from None
    if child.returncode:
        last = words.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()[:200]
        how = (
            f"was ended by signal {-child.returncode}"
            if child.returncode < 0
            else f"failed with exit code {child.returncode}"
        )
        raise _Failed(f"looking at it {how}{f': {last}' if last else ''}")
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _Failed(f"looking at it gave what cannot be read ({error})") from None
