"""Meters by a DCGM exporter's page: which boards, how much, and what of a bad exporter."""

import sys
import time

import pytest

from green_core.energy import dcgm_devices, dcgm_page
from green_core.energy.dcgm import dcgm_meters
from green_core.energy.dcgm_times import LOOK_S
from green_core.energy.visible import Board, Slice
from green_core.errors import MeterUnavailable
from green_core.testing.builders import engine_info
from green_core.testing.dcgm import DcgmBoard, DcgmDouble

BOARDS = ("GPU-aaaa", "GPU-bbbb", "GPU-cccc")


class Clock:
    def __init__(self):
        self.at_s = 1000.0

    def __call__(self):
        return self.at_s


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """A container without NVML, which is told nothing."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)


def comes_back(clock, meter, exporter):
    """Whether the meter shows the counter again once the pauses are over. A look that is under way
    may end in one more.
    """
    for _ in range(10):
        collect(exporter, 50.0)
        clock.at_s += 61.0
        give_up_s = time.monotonic() + 3.0
        while time.monotonic() < give_up_s:
            if (reading := meter.read()) is not None:
                return reading.energy_j == exporter.boards[0].energy_j
            time.sleep(0.005)
    return False


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def exporter():
    with DcgmDouble([DcgmBoard(uuid) for uuid in BOARDS]) as exporter:
        yield exporter


@pytest.fixture
def meters(exporter, clock):
    """The meters of an engine, closed at the end."""
    made = []

    def make(count=1):
        found = dcgm_meters(engine_info(device_count=count), exporter.url, now_s=clock)
        made.extend(found)
        return found

    yield make
    for meter in made:
        meter.close()


def eventually(condition):
    give_up_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_s, "it never came to be"
        time.sleep(0.002)


def collect(exporter, joules, *, of=None):
    for board in exporter.boards:
        if of is None or board.uuid == of:
            board.energy_j += joules
    exporter.collect()


def look(clock, meter, energy_j, *, after_s=LOOK_S):
    """Let time pass and wait until the meter shows the joules."""
    clock.at_s += after_s
    eventually(lambda: (reading := meter.read()) is not None and reading.energy_j == energy_j)
    return meter.read()


def goes_dark(clock, meter):
    """Whether the meter has a gap after ten seconds of failing looks."""
    for _ in range(10):
        clock.at_s += 1.0
        meter.read()
        time.sleep(0.02)
    return meter.read() is None


def test_the_counter_is_read_from_its_first_move_on(meters, exporter, clock, monkeypatch):
    """FIELD E11, E12: and dated by the look that shows it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb")
    (meter,) = meters()
    assert (meter.name, meter.method) == ("GPU-bbbb", "measured:dcgm-counter")
    assert (meter.period_s, meter.uncertainty_ratio) == (LOOK_S, None)
    assert meter.read() is None
    collect(exporter, 50.0)
    assert look(clock, meter, 1050.0).at_s == 1001.0
    collect(exporter, 25.0)
    assert look(clock, meter, 1075.0).at_s == 1002.0


@pytest.mark.parametrize(
    ("visible", "granted", "expected"),
    [
        ("1", None, ["GPU-bbbb"]),
        ("GPU-cccc,0", None, ["GPU-cccc", "GPU-aaaa"]),
        (None, "GPU-cccc", ["GPU-cccc"]),
        ("0", "GPU-cccc,GPU-bbbb", ["GPU-bbbb"]),  # counted among those of the container
        ("1,0", "1,2", ["GPU-cccc", "GPU-bbbb"]),
        ("2", "all", ["GPU-cccc"]),
    ],
)
def test_without_nvml_the_variables_say_which_boards(
    meters, monkeypatch, visible, granted, expected
):
    """FIELD E10: an index means the exporter's gpu label, within what the container was given."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if granted is not None:
        monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", granted)
    assert [meter.name for meter in meters(len(expected))] == expected


def test_an_index_means_the_label_where_the_exporter_watches_only_some_boards(monkeypatch):
    """FIELD E10: not the place on the page."""
    with DcgmDouble([DcgmBoard("GPU-c"), DcgmBoard("GPU-d")], first_index=2) as exporter:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        (meter,) = dcgm_meters(engine_info(), exporter.url)
        meter.close()
        assert meter.name == "GPU-d"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        with pytest.raises(MeterUnavailable, match="does not show the board gpu=0"):
            dcgm_meters(engine_info(), exporter.url)


def test_where_nothing_says_which_boards_none_is_metered(meters):
    """FIELD E10: an exporter shows the whole node, not what this process has."""
    with pytest.raises(MeterUnavailable, match=r"3 boards.*CUDA_VISIBLE_DEVICES"):
        meters(1)
    assert len(meters(3)) == 3


def test_nvml_says_which_boards_where_it_can_be_opened(meters, monkeypatch):
    """FIELD E10: a container sees its own devices through NVML, whatever the node has."""
    monkeypatch.setattr(dcgm_devices, "_boards_by_nvml", lambda: [Board("GPU-cccc", "H100")])
    assert [meter.name for meter in meters()] == ["GPU-cccc"]
    monkeypatch.setattr(dcgm_devices, "_boards_by_nvml", lambda: [Board("GPU-elsewhere", "H100")])
    with pytest.raises(MeterUnavailable, match=r"does not show GPU-elsewhere"):
        meters()


def test_a_slice_gets_its_part_of_a_board_that_is_counted_once(clock, monkeypatch):
    """FIELD E5, E8: the page repeats the board's energy for each slice."""
    slices = (Slice("MIG-1", 3, 0, 3 / 7), Slice("MIG-2", 5, 0, 4 / 7))
    boards = [Board("GPU-a", "H100", True, slices)]
    monkeypatch.setattr(dcgm_devices, "_boards_by_nvml", lambda: boards)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2")
    board = DcgmBoard("GPU-a", energy_j=700.0, slices=((3, "3g.40gb"), (5, "4g.40gb")))
    with DcgmDouble([board]) as exporter:
        (meter,) = dcgm_meters(engine_info(), exporter.url, now_s=clock)
        assert (meter.name, meter.method) == ("MIG-2", "estimated:dcgm-counter(mig share)")
        collect(exporter, 700.0)
        look(clock, meter, 800.0)
        meter.close()


@pytest.mark.parametrize("visible", ["MIG-1", None])
def test_a_slice_is_not_guessed_without_nvml(clock, monkeypatch, visible):
    """FIELD E5: the page has no MIG UUIDs."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with DcgmDouble([DcgmBoard("GPU-a", slices=((3, "3g.40gb"),))]) as exporter:
        with pytest.raises(MeterUnavailable, match=r"MIG slice.*utility"):
            dcgm_meters(engine_info(), exporter.url, now_s=clock)


def test_boards_of_several_hosts_are_not_mixed_up(clock, monkeypatch):
    """FIELD E10: a page of a whole cluster has many boards gpu=0."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with DcgmDouble([DcgmBoard("GPU-a"), DcgmBoard("GPU-b", host="node-b")]) as exporter:
        with pytest.raises(MeterUnavailable, match="several hosts"):
            dcgm_meters(engine_info(), exporter.url, now_s=clock)


def test_power_is_added_up_where_the_exporter_shows_no_energy(meters, exporter, clock):
    """FIELD E13: under its own name, and not over time in which nobody looked."""
    for board in exporter.boards:
        board.energy_j = None
    exporter.collect()
    (meter, *_) = meters(3)
    assert meter.method == "measured:dcgm-power"
    assert look(clock, meter, 0.0, after_s=0.0).at_s == 1000.0
    look(clock, meter, 200.0, after_s=2.0)
    clock.at_s += 600.0
    meter.read()
    eventually(lambda: meter.read() is not None)
    late = meter.read()
    assert (late.energy_j, late.restarts, late.at_s) == (200.0, True, 1602.0)


def test_a_slices_power_is_its_part_of_the_boards(clock, monkeypatch):
    """FIELD E5, E13."""
    boards = [Board("GPU-a", "H100", True, (Slice("MIG-1", 3, 0, 0.25),))]
    monkeypatch.setattr(dcgm_devices, "_boards_by_nvml", lambda: boards)
    with DcgmDouble([DcgmBoard("GPU-a", energy_j=None, power_w=400.0)]) as exporter:
        (meter,) = dcgm_meters(engine_info(), exporter.url, now_s=clock)
        assert meter.method == "estimated:dcgm-power(mig share)"
        look(clock, meter, 0.0, after_s=0.0)
        look(clock, meter, 200.0, after_s=2.0)
        meter.close()


def test_a_board_that_shows_nothing_is_unavailable(meters, exporter):
    """FIELD E2: never zero joules."""
    exporter.boards[1].energy_j = exporter.boards[1].power_w = 0.0
    exporter.collect()
    with pytest.raises(MeterUnavailable, match="neither energy nor power of GPU-bbbb"):
        meters(3)


@pytest.mark.parametrize("mood", ["html", "half", "empty", "error", "hang", "trickle"])
def test_a_bad_exporter_is_a_gap_and_measuring_resumes(meters, exporter, clock, mood):
    """FIELD E17: the caller never waits and nothing raises."""
    (meter, *_) = meters(3)
    collect(exporter, 50.0)
    look(clock, meter, 1050.0)
    exporter.mood = mood
    before_s = time.monotonic()
    assert goes_dark(clock, meter)
    assert time.monotonic() - before_s < 10.0
    exporter.mood = "page"
    assert comes_back(clock, meter, exporter)


def test_an_exporter_that_is_gone_is_a_gap_and_is_not_asked_all_the_time(exporter, clock):
    """FIELD E17."""
    found = dcgm_meters(engine_info(device_count=3), exporter.url, now_s=clock)
    collect(exporter, 50.0)
    look(clock, found[0], 1050.0)
    exporter.mood = "error"
    asked = exporter.requests
    for _ in range(300):
        clock.at_s += 1.0
        found[0].read()
        time.sleep(0.002)
    assert exporter.requests - asked < 30
    assert found[0].read() is None
    for meter in found:
        meter.close()


def test_a_page_that_stands_still_is_a_gap(meters, exporter, clock):
    """FIELD E17, E2: an exporter that answers and no longer collects is not an idle device."""
    (meter, *_) = meters(3)
    for joules in (1050.0, 1100.0):
        collect(exporter, 50.0)
        reading = look(clock, meter, joules)
    clock.at_s += 2.0
    eventually(lambda: meter.read() == reading)
    clock.at_s += 5.0
    assert meter.read() is None


def test_a_board_that_leaves_the_page_is_a_gap_of_its_own(meters, exporter, clock):
    """FIELD E17: the others go on."""
    one, two, _ = meters(3)
    for joules in (1050.0, 1100.0):
        collect(exporter, 50.0)
        look(clock, one, joules)
    gone = exporter.boards.pop(1)
    assert gone.uuid == two.name
    for joules in (1150.0, 1200.0, 1250.0, 1300.0, 1350.0):
        collect(exporter, 50.0)
        look(clock, one, joules)
    assert two.read() is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1/metrics", "refused"),
        ("127.0.0.1:9400", "protocol"),
        ("http://[bad", "."),
    ],
)
def test_a_page_that_cannot_be_had_is_said_with_a_way_out(url, words):
    """FIELD E2."""
    with pytest.raises(MeterUnavailable, match=f"(?s)energy.dcgm_url.*{words}.*energy.meter"):
        dcgm_meters(engine_info(), url)


@pytest.mark.parametrize("mood", ["html", "half", "empty", "error", "hang"])
def test_a_start_with_a_bad_exporter_is_refused_in_words(exporter, monkeypatch, mood):
    """FIELD E2, E17."""
    monkeypatch.setattr(dcgm_page, "TIMEOUT_S", 0.5)
    exporter.mood = mood
    with pytest.raises(MeterUnavailable, match="cannot be used"):
        dcgm_meters(engine_info(), exporter.url)


def test_importing_the_meter_loads_no_http_client():
    import subprocess

    code = (
        "import sys, green_core.energy.dcgm, green_core.energy.nvml\n"
        "print([m for m in ('httpx', 'pynvml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
