import sys
import types

import pytest

from green_core import SeamMoved
from green_core.seams import Seam, SeamTable


@pytest.fixture
def engine(monkeypatch):
    module = types.ModuleType("fake_engine")

    class Scheduler:
        def schedule(self, throttle=False):
            return ("stock", throttle)

        @staticmethod
        def static(x):
            return x

    module.Scheduler = Scheduler
    module.helper = lambda x: x
    monkeypatch.setitem(sys.modules, "fake_engine", module)
    return module


def _seam(target, params=(), wrap=None, where=("engine",)):
    return Seam(target=target, reason="r", removal="x", where=where, params=params, wrap=wrap)


def _twice(original):
    return lambda *args, **kwargs: ("wrapped", original(*args, **kwargs))


def test_wraps_forward_everything_and_come_off(engine):
    table = SeamTable("fake", [_seam("fake_engine:Scheduler.schedule", ("self",), _twice)])
    table.apply()
    assert engine.Scheduler().schedule(throttle=True) == ("wrapped", ("stock", True))
    assert table.verify() == []
    table.undo()
    assert engine.Scheduler().schedule() == ("stock", False)
    assert table.verify() == ["fake_engine:Scheduler.schedule"]


def test_applying_twice_wraps_once(engine):
    """FIELD P1."""
    table = SeamTable("fake", [_seam("fake_engine:helper", wrap=_twice)])
    table.apply()
    table.apply()
    assert engine.helper(1) == ("wrapped", 1)


def test_static_methods_stay_static(engine):
    table = SeamTable("fake", [_seam("fake_engine:Scheduler.static", ("x",), _twice)])
    table.apply()
    assert engine.Scheduler.static(3) == engine.Scheduler().static(3) == ("wrapped", 3)
    table.undo()
    assert engine.Scheduler().static(3) == 3


def test_a_moved_symbol_is_named_and_nothing_is_half_patched(engine):
    """FIELD P4."""
    table = SeamTable(
        "fake",
        [
            _seam("fake_engine:helper", wrap=_twice),
            _seam("fake_engine:Scheduler.gone"),
            _seam("fake_engine:Scheduler.schedule", ("self", "other")),
        ],
    )
    with pytest.raises(SeamMoved) as caught:
        table.apply()
    assert "Scheduler.gone is missing" in str(caught.value)
    assert "takes (self, throttle), expected (self, other)" in str(caught.value)
    assert engine.helper(1) == 1


def test_only_the_seams_of_a_role_are_touched(engine):
    table = SeamTable(
        "fake",
        [
            _seam("fake_engine:helper", wrap=_twice, where=("front",)),
            _seam("fake_engine:Scheduler.schedule", ("self",), _twice),
        ],
    )
    table.apply(where="front")
    assert table.verify(where="front") == []
    assert table.verify(where="engine") == ["fake_engine:Scheduler.schedule"]


def test_a_seam_cannot_stand_twice():
    with pytest.raises(ValueError, match="twice"):
        SeamTable("fake", [_seam("a:b"), _seam("a:b")])
