"""When the books look at a meter while a step is under way."""

import pytest

from green_core.books import Books
from green_core.config import EnergyConfig, GreenConfig
from green_core.energy.attribution import MAX_STEP_S
from green_core.faults import Faults
from green_core.manager import GreenManager
from green_core.signal_watch import SignalWatch
from green_core.spec import hookimpl
from green_core.values import Meter, MeterReading, StepShare, StepView


class Device:
    """Draws 300 W; its meter adds up samples, or is the device's own counter."""

    def __init__(self, *, is_absolute):
        self.at_s = 0.0
        self._is_absolute = is_absolute

    @hookimpl
    def green_meters(self):
        return [
            Meter(
                "device",
                "measured:device",
                0.1,
                lambda: MeterReading(self.at_s, 300.0 * self.at_s),
                lambda: None,
                is_absolute=self._is_absolute,
            )
        ]


@pytest.fixture
def books(kit, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    opened = []

    def make(device):
        config = GreenConfig(energy=EnergyConfig(meter="device"))
        opened.append(
            Books(
                config,
                kit.engine,
                signal=kit.signal(),
                watch=SignalWatch("static", stock_when_stale=True, on_change=lambda: None),
                manager=GreenManager(config, {"device": device}),
                metrics_dir=tmp_path,
                now_s=0.0,
                faults=Faults(),
            )
        )
        return opened[-1]

    yield make
    for each in opened:
        each.close(1000.0)


def looks_again(books, device, at_s):
    device.at_s = at_s
    books.settle(at_s, at_once=True)
    return books.dirty


def test_a_sum_of_samples_is_looked_at_while_a_long_step_runs(books):
    """Two samples more than 10 s apart tell nothing of the time between them."""
    device = Device(is_absolute=False)
    it = books(device)
    it.busy_since_s = 1.0
    assert looks_again(it, device, 5.0)
    assert looks_again(it, device, 14.0)
    it.busy_since_s = None
    assert not looks_again(it, device, 15.0)


def test_a_step_that_never_ends_keeps_nobody_awake(books):
    """FIELD P15."""
    device = Device(is_absolute=False)
    it = books(device)
    it.busy_since_s = 1.0
    assert not looks_again(it, device, 1.0 + MAX_STEP_S)


def test_a_counter_is_left_alone_until_the_step_ends(books):
    device = Device(is_absolute=True)
    it = books(device)
    it.busy_since_s = 1.0
    assert not looks_again(it, device, 5.0)


@pytest.mark.parametrize(("step_s", "period_s"), [(0.001, 0.1), (0.4, 0.4), (30.0, 1.0)])
def test_a_meter_is_read_once_a_step_but_no_faster_than_its_counter_moves(books, step_s, period_s):
    """FIELD E12. And never slower than once a second."""
    device = Device(is_absolute=True)
    it = books(device)
    now_s = 0.0
    for _ in range(300):  # until the mean of the steps is known
        it.step(StepView(now_s, now_s + step_s, (StepShare("a", 0, 1, 10),)), 0.0, 0)
        now_s += step_s
    device.at_s = now_s
    assert it.settle(now_s, at_once=True)
    assert not it.settle(now_s + 0.9 * period_s, at_once=False)
    assert it.settle(now_s + 1.1 * period_s, at_once=False)
