"""The flat-grid control: what is left of the saving without the grid's swing."""

import pytest
from greendemo.control import count_held, run_control
from greendemo.grid import write_replay

from green_core import config as configuration
from green_core.grid.file import open_file_signal

ANCHOR_S = 1_800_000_000.0
DAYS = 3


@pytest.fixture
def config(day, tmp_path):
    write_replay(day, tmp_path / "grid.csv", days=DAYS)
    overrides = {
        "profile": "carbon",
        "carbon.source": "file",
        "carbon.path": str(tmp_path / "grid.csv"),
        "carbon.replay_start": day.start.isoformat(),
        "carbon.speed": 1000.0,
        "carbon.forecast": "recorded",
    }
    return configuration.load(env={}, overrides=overrides).config


def test_on_a_flat_grid_only_the_change_of_joules_is_left(off, make_arm, config, day, tmp_path):
    on = make_arm("on", number=1, flex_starts_s=44.0, waste_j=3.8)
    control = run_control(
        off, on, config=config, day=day, days=DAYS, anchor_s=ANCHOR_S, folder=tmp_path
    )
    joules = on.account.energy_j / off.account.energy_j - 1
    assert joules > 0.005
    assert control.change == pytest.approx(joules)
    assert on.account.carbon_g < off.account.carbon_g  # the recorded grid did save


def test_the_replayed_policy_holds_on_the_recorded_day_and_not_on_a_flat_one(
    off, on, config, day, tmp_path
):
    control = run_control(
        off, on, config=config, day=day, days=DAYS, anchor_s=ANCHOR_S, folder=tmp_path
    )
    assert (control.held_recorded, control.held_flat) == (3, 0)


def test_a_deadline_that_leaves_no_room_is_not_held(off, config):
    signal = open_file_signal(config.carbon, anchor_s=ANCHOR_S)
    rows = off.account.of("flex")
    assert count_held(config, signal, rows, [72.0] * 3) == 3
    assert count_held(config, signal, rows, [12.0] * 3) == 0


def test_a_flat_day_is_as_dirty_on_average(day):
    assert day.flat().mean == pytest.approx(day.mean)
    assert len(set(day.flat().intensities)) == 1
