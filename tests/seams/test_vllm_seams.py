"""The table of seams against the installed vLLM: a moved symbol fails here, not in a server."""

from __future__ import annotations

import importlib
import operator
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from green_core.errors import SeamMoved
from green_core.seams import Seam, SeamTable
from green_core.spec import hookspec
from vllm_green.seams import table
from vllm_green.versions import VERIFIED, engine_version

PLACES = ("engine", "front", "http")


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """vLLM and torch warn while they are imported, which is none of ours."""
    with warnings.catch_warnings(action="ignore"):
        for seam in table().seams:
            importlib.import_module(seam.module)


@pytest.fixture
def seams() -> Iterator[SeamTable]:
    """A table of its own, undone at the end."""
    fresh = table.__wrapped__()
    yield fresh
    fresh.undo()


def symbol(seam: Seam) -> Any:
    module, _, path = seam.target.partition(":")
    return operator.attrgetter(path)(importlib.import_module(module))


def test_the_installed_release_is_a_verified_one() -> None:
    assert engine_version() in VERIFIED


@pytest.mark.parametrize("target", [seam.target for seam in table().seams])
def test_every_symbol_is_there_with_its_signature(target: str) -> None:
    (seam,) = [seam for seam in table().seams if seam.target == target]
    SeamTable("vLLM", [seam]).check()


@pytest.mark.parametrize("target", [seam.target for seam in table().seams])
def test_every_seam_says_why_and_until_when(target: str) -> None:
    (seam,) = [seam for seam in table().seams if seam.target == target]
    assert seam.reason
    assert seam.removal
    assert seam.hooks
    assert set(seam.where) <= set(PLACES)
    assert set(seam.where)


@pytest.mark.parametrize("where", PLACES)
def test_wraps_are_applied_once_and_can_be_undone(seams: SeamTable, where: str) -> None:
    wrapped = [seam for seam in seams.seams if seam.wrap and where in seam.where]
    before = {seam.target: symbol(seam) for seam in seams.seams}
    assert wrapped
    assert set(seams.verify(where=where)) == {seam.target for seam in wrapped}
    seams.apply(where=where)
    first = {seam.target: symbol(seam) for seam in wrapped}
    assert all(first[target] is not before[target] for target in first)
    assert not seams.verify(where=where)
    seams.apply(where=where)  # a second plugin load in the same process
    assert {seam.target: symbol(seam) for seam in wrapped} == first
    seams.undo()
    assert {seam.target: symbol(seam) for seam in seams.seams} == before


@pytest.mark.parametrize("target", [seam.target for seam in table().seams if seam.params])
def test_a_changed_signature_is_refused_by_name(seams: SeamTable, target: str) -> None:
    """FIELD P4: all are checked before any is touched."""
    (seam,) = [seam for seam in seams.seams if seam.target == target]
    owner, name = _owner(seam)
    before = {other.target: symbol(other) for other in seams.seams if other is not seam}

    def changed(surprise: Any) -> None:
        """What a later release might have."""

    with mock.patch.object(owner, name, changed):
        with pytest.raises(SeamMoved) as moved:
            seams.apply()
    assert f"{target} takes (surprise)" in str(moved.value)
    assert {other.target: symbol(other) for other in seams.seams if other is not seam} == before


def test_a_vanished_symbol_is_refused_by_name(
    seams: SeamTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    seam = next(seam for seam in seams.seams if seam.target.endswith("._enqueue_waiting_request"))
    monkeypatch.delattr(*_owner(seam))
    with pytest.raises(SeamMoved, match=r"_enqueue_waiting_request is missing"):
        seams.apply()
    assert set(seams.verify()) == {other.target for other in seams.seams if other.wrap}


def test_seams_name_hooks_that_exist() -> None:
    from green_core import spec

    known = {name for name in vars(spec) if name.startswith("green_")}
    assert hookspec is spec.hookspec
    for seam in table().seams:
        assert set(seam.hooks) <= known


def test_everything_the_scheduler_overrides_is_in_the_table() -> None:
    """What greenserve overrides it relies on: a new override needs a row."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from vllm_green.scheduler import GreenSchedulerMixin

    overridden = {
        name
        for name, value in vars(GreenSchedulerMixin).items()
        if callable(value) and hasattr(Scheduler, name) and not name.startswith("__")
    }
    listed = {seam.target.rpartition(".")[2] for seam in table().seams}
    assert overridden <= listed


def _owner(seam: Seam) -> tuple[Any, str]:
    module, _, path = seam.target.partition(":")
    parent, _, name = path.rpartition(".")
    owner: Any = importlib.import_module(module)
    return (operator.attrgetter(parent)(owner) if parent else owner), name
