"""Seams: the symbols of an engine that an adapter builds on.

An adapter states them as data: what is wrapped, why, which signature was verified, and when the
wrap can go. The table refuses a symbol that moved, applies wraps once per process, proves that
they are live, and can undo them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from green_core.errors import SeamMoved

_MARK = "__greenserve_seam__"


class Seam(msgspec.Struct, frozen=True):
    """One symbol that is wrapped (``wrap`` given) or only relied upon (``wrap`` is ``None``).

    ``target`` is ``module:Class.method`` or ``module:function``. ``params`` are the parameter
    names that must exist, in order, in the engine's signature (more may follow: wraps forward
    everything). ``wrap`` takes the original and answers the replacement. ``where`` names the
    processes in which the seam must be live ("api", "engine").
    """

    target: str
    reason: str
    removal: str
    where: tuple[str, ...]
    params: tuple[str, ...] = ()
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    hooks: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Module part of ``target``."""
        return self.target.partition(":")[0]


class SeamTable:
    """The seams of one engine in one process."""

    def __init__(self, engine: str, seams: Iterable[Seam]) -> None:
        self.engine = engine
        self.seams = tuple(seams)
        self._applied: dict[str, tuple[Any, str, Any]] = {}
        targets = [seam.target for seam in self.seams]
        if len(set(targets)) != len(targets):
            raise ValueError(f"{engine}: a seam stands twice in the table")

    def problems(self, *, where: str | None = None) -> dict[str, str]:
        """What is wrong with which target; nothing is touched."""
        found = {seam.target: _examine(seam) for seam in self._select(where)}
        return {target: problem for target, problem in found.items() if problem is not None}

    def check(self, *, where: str | None = None) -> None:
        """Raise ``SeamMoved`` naming every symbol that is missing or has another signature."""
        if problems := self.problems(where=where):
            raise SeamMoved(
                f"{self.engine}: greenserve does not fit this build of the engine: "
                + "; ".join(problems.values())
                + ". Use a verified engine version (see the compatibility table) or remove green"
            )

    def apply(self, *, where: str | None = None) -> None:
        """Wrap every selected seam, once per process. All are checked before any is touched.

        The mark sits on the wrapped symbol itself, so a forked child, which inherits the wraps,
        and a second call both find them in place (FIELD P1).
        """
        self.check(where=where)
        for seam in self._select(where):
            if seam.wrap is None:
                continue
            owner, name, original = _resolve(seam)
            if getattr(original, _MARK, None) == seam.target:
                continue
            plain = _plain(owner, name, original)
            wrapped = seam.wrap(plain)
            functools.update_wrapper(wrapped, plain)
            setattr(wrapped, _MARK, seam.target)
            setattr(owner, name, staticmethod(wrapped) if _is_static(owner, name) else wrapped)
            self._applied[seam.target] = (owner, name, original)

    def verify(self, *, where: str | None = None) -> list[str]:
        """Targets that should be wrapped in this process and are not; empty when all are live."""
        missing = []
        for seam in self._select(where):
            if seam.wrap is not None:
                _, _, current = _resolve(seam)
                if getattr(current, _MARK, None) != seam.target:
                    missing.append(seam.target)
        return missing

    def undo(self) -> None:
        """Put back what :meth:`apply` replaced, last first."""
        for owner, name, original in reversed(self._applied.values()):
            setattr(owner, name, staticmethod(original) if _is_static(owner, name) else original)
        self._applied.clear()

    def _select(self, where: str | None) -> list[Seam]:
        return [seam for seam in self.seams if where is None or where in seam.where]


def _resolve(seam: Seam) -> tuple[Any, str, Any]:
    module_name, _, path = seam.target.partition(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name, getattr(owner, name)


def _examine(seam: Seam) -> str | None:
    try:
        _, _, symbol = _resolve(seam)
    except (ImportError, AttributeError) as error:
        return f"{seam.target} is missing ({error})"
    if not seam.params:
        return None
    try:
        found = tuple(inspect.signature(symbol).parameters)
    except (TypeError, ValueError) as error:
        return f"{seam.target} has no signature ({error})"
    if found[: len(seam.params)] != seam.params:
        return f"{seam.target} takes ({', '.join(found)}), expected ({', '.join(seam.params)})"
    return None


def _is_static(owner: Any, name: str) -> bool:
    return isinstance(owner, type) and isinstance(
        inspect.getattr_static(owner, name, None), staticmethod
    )


def _plain(owner: Any, name: str, found: Any) -> Callable[..., Any]:
    raw = vars(owner).get(name, found) if isinstance(owner, type) else found
    if isinstance(raw, staticmethod):
        return raw.__func__
    plain: Callable[..., Any] = raw
    return plain
