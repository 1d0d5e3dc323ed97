"""A meter that does not keep its word is a gap and breaks nothing."""

import pytest

from green_core.config import EnergyConfig
from green_core.energy.build import open_meter
from green_core.testing.builders import engine_info
from green_core.values import Meter, MeterReading

GOOD = MeterReading(1.0, 50.0)
NAN, INF = float("nan"), float("inf")


class Plugins:
    names = ("own",)

    def __init__(self, read, close=lambda: None):
        self._meter = Meter("own:0", "measured:own", 0.1, read, close, is_absolute=True)

    def meters(self, engine):
        return [self._meter]


def opened(read, **options):
    choice = open_meter(EnergyConfig(meter="own"), engine_info(), Plugins(read, **options))
    return choice.meter


def fails(*_):
    raise RuntimeError("on purpose")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.mark.parametrize(
    "bad",
    [
        fails,
        lambda: 42,
        lambda: MeterReading(1.0, "50"),
        lambda: MeterReading(2.0, NAN),
        lambda: MeterReading(2.0, -INF),
        lambda: MeterReading(INF, 60.0),
        lambda: MeterReading(2.0, 60.0, method=7),
    ],
)
def test_whatever_a_meter_does_is_a_gap_that_is_said_once(bad, caplog):
    """FIELD E3, E17."""
    answers = [lambda: GOOD, lambda: GOOD, bad, bad, lambda: GOOD]

    def read():
        return answers.pop(0)()

    meter = opened(read)
    energies = [reading and reading.energy_j for reading in (meter.read() for _ in range(4))]
    assert energies == [50.0, None, None, 50.0]
    (record,) = [each for each in caplog.records if "the meter own:0" in each.message]
    assert "is a gap" in record.message
    meter.close()


def test_a_meter_that_fails_from_the_start_stops_nothing(caplog):
    meter = opened(fails, close=fails)
    assert meter.read() is None
    meter.close()
    assert caplog.text.count("the meter own:0") == 1
