"""The folder in which processes that share a device meet: swept away, locked, full, not ours."""

import shutil

import pytest

from green_core.energy.board import BoardFiles
from green_core.energy.sharing import PATIENCE_S, share
from green_core.errors import MeterUnavailable
from green_core.locks import FileLock
from green_core.testing.sharing import METHOD, SharedDevice, SharingEngine, settle
from green_core.values import Meter


@pytest.fixture
def device():
    return SharedDevice()


def no_space(files, board):
    raise OSError(28, "No space left on device")


def test_a_board_that_was_swept_away_is_a_gap_and_sharing_goes_on(device, tmp_path):
    one, two = (SharingEngine(device, tmp_path) for _ in range(2))
    one.read(), two.read()
    for path in tmp_path.glob("*.json"):
        path.unlink()
    device.run(1.0, watts=100.0)
    assert one.read().restarts
    assert two.read().restarts
    base = one.last.energy_j, two.last.energy_j
    device.run(1.0, watts=100.0)
    one.work(3.0), two.work(1.0)
    settle(device, one, two)
    assert one.last.energy_j - base[0] == pytest.approx(75.0)
    assert two.last.energy_j - base[1] == pytest.approx(25.0)


@pytest.mark.parametrize("alone", [True, False])
def test_a_folder_that_was_swept_away_is_made_again(device, tmp_path, alone):
    """FIELD E17: a logout or a cleaner of temporary files must not end the metering."""
    folder = tmp_path / "shares"
    engines = [SharingEngine(device, folder) for _ in range(1 if alone else 2)]
    settle(device, *engines)
    shutil.rmtree(folder)
    device.run(1.0, watts=100.0)
    assert all(engine.read().restarts for engine in engines)
    settle(device, *engines)
    counter_j, before_j = device.counter_j, sum(engine.got_j for engine in engines)
    device.run(1.0, watts=100.0)
    settle(device, *engines)
    given_j = sum(engine.got_j for engine in engines) - before_j
    assert given_j == pytest.approx(device.counter_j - counter_j)


def test_a_process_whose_sign_of_life_was_swept_away_is_not_taken_for_dead(device, tmp_path):
    """FIELD E8: cleaners take files that nobody has written for days."""
    one, two = SharingEngine(device, tmp_path), SharingEngine(device, tmp_path)
    settle(device, one, two)
    for path in tmp_path.glob("*.live"):
        path.unlink()
    one.read(), two.read()
    counter_j, before_j = device.counter_j, one.got_j + two.got_j
    for _ in range(5):
        device.run(1.0, watts=100.0)
        for engine in (one, two):
            engine.work(1.0)
            assert not engine.read().restarts
    settle(device, one, two)
    assert one.got_j + two.got_j - before_j == pytest.approx(device.counter_j - counter_j)


def test_a_board_that_stays_locked_is_a_gap_in_the_end(device, tmp_path):
    """FIELD E17: who holds it may have been stopped, and requests must settle all the same."""
    one, two = SharingEngine(device, tmp_path), SharingEngine(device, tmp_path)
    settle(device, one, two)
    holder = FileLock(one.desk._files.lock.path)
    assert holder.acquire()
    device.run(20.0, watts=100.0)
    assert one.read() == one.last
    device.run(70.0, watts=100.0)
    assert one.read() is None
    holder.release()
    settle(device, one, two)
    assert one.read() is not None


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("reader_fails", [True, False])
def test_a_division_that_could_not_be_written_did_not_happen(
    device, tmp_path, absolute, reader_fails, monkeypatch
):
    """FIELD E8: a full disk makes nobody count what another one divides later."""
    one, two = (SharingEngine(device, tmp_path, absolute=absolute) for _ in range(2))
    if reader_fails:
        one, two = two, one
    settle(device, one, two)
    before_j, counter_j = one.got_j + two.got_j, device.counter_j
    for _ in range(4):
        for engine in (one, two):
            device.run(0.6, watts=100.0)
            engine.work(1.0)
            engine.read()
    device.run(0.6, watts=100.0)
    with monkeypatch.context() as full:
        full.setattr(BoardFiles, "store", no_space)
        one.work(1.0)
        assert one.read() is None
    for engine in (two, one):  # the other one falls silent, so this one takes over
        device.run(PATIENCE_S + 1.0, watts=100.0)
        engine.work(1.0)
        engine.read()
    settle(device, one, two)
    assert one.got_j + two.got_j - before_j <= device.counter_j - counter_j + 1e-6
    if absolute:
        assert one.got_j + two.got_j - before_j == pytest.approx(device.counter_j - counter_j)


def test_a_folder_that_cannot_be_used_is_said_and_the_meter_is_closed(device, tmp_path):
    closed = []
    meter = Meter("GPU-1", METHOD, 0.1, lambda: None, lambda: closed.append(True))
    with pytest.raises(MeterUnavailable, match="XDG_RUNTIME_DIR"):
        share(meter, folder=tmp_path / "absent" / "shares")
    assert closed == [True]


def test_a_runtime_folder_of_somebody_else_is_said_with_one_way_out(tmp_path, monkeypatch):
    (tmp_path / "greenserve").symlink_to(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(MeterUnavailable, match="not a folder of this user") as refused:
        share(Meter("GPU-1", METHOD, 0.1, lambda: None, lambda: None))
    assert str(refused.value).count("Set XDG_RUNTIME_DIR") == 1
