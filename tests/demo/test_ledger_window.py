"""The books of one arm: what of the ledger belongs to its window."""

import msgspec
import pytest
from greendemo.ledger import Interval, read_account, settled_until_s

from green_core.export.ledger import Ledger
from green_core.testing.builders import engine_info, interval_record, request_record
from green_core.testing.doubles import START_S
from green_core.values import IntervalRecord, Settled

RECORD = request_record(
    6.0,
    urgency="interactive",
    arrival_s=START_S + 1,
    finished_s=START_S + 2,
    wait_s=0.25,
    held_s=0.0,
    operational_g=0.5,
    embodied_g=0.25,
)


def interval(start_s: float, end_s: float, active_j: float, idle_j: float) -> IntervalRecord:
    return interval_record(
        active_j,
        idle_j,
        start_s=START_S + start_s,
        end_s=START_S + end_s,
        operational_g=(active_j + idle_j) * 1.2 * 300.0 / 3.6e6,
        embodied_g=0.0,
    )


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "ledger.db"
    before = msgspec.structs.replace(RECORD, request_id="before", arrival_s=START_S - 1)
    after = msgspec.structs.replace(
        RECORD, request_id="after", arrival_s=START_S + 10, finished_s=START_S + 11
    )
    ledger = Ledger.open(str(file), engine=engine_info(), keep_days=0)
    ledger.write(
        Settled(
            (before, RECORD, after),
            (interval(-2, 2, 6.0, 2.0), interval(2, 8, 0.0, 12.0), interval(8, 12, 0.0, 8.0)),
        )
    )
    ledger.close()
    return file


def test_a_window_counts_what_arrived_in_it_and_parts_of_intervals_by_time(path):
    account = read_account(path, START_S, START_S + 10)
    (row,) = account.rows
    assert (row.urgency, row.energy_j, row.carbon_g) == ("interactive", 6.0, 0.75)
    assert row.started_s == START_S + 1.25
    assert account.idle_j == pytest.approx(1.0 + 12.0 + 4.0)
    assert account.energy_j == pytest.approx(3.0 + 17.0)
    assert account.carbon_g == pytest.approx(20.0 * 1.2 * 300.0 / 3.6e6)
    assert settled_until_s(path) == START_S + 12


def test_windows_that_meet_share_an_interval_without_loss():
    whole = Interval(0.0, 10.0, 4.0, 6.0, 1.0)
    parts = [whole.within(-5.0, 3.0), whole.within(3.0, 99.0)]
    for name in ("active_j", "idle_j", "carbon_g"):
        assert sum(getattr(p, name) for p in parts) == pytest.approx(getattr(whole, name))
    assert parts[0].end_s == parts[1].start_s == 3.0


def test_the_price_at_one_intensity_follows_energy_alone(path):
    account = read_account(path, START_S, START_S + 10)
    assert account.carbon_at(300.0, 1.2) == pytest.approx(account.carbon_g)
    assert account.carbon_at(150.0, 1.2) == pytest.approx(account.carbon_g / 2)
