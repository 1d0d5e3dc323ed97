"""MIG slices: which one a process has, and what part of the board's energy is its own."""

import pytest

from green_core.testing import nvml as stubs
from green_core.testing.nvml import MigSlice, NvmlStub

SMALL = MigSlice("MIG-aaaa0000-1111-5111-8111-000000000000", gpu_instance=1, slices=3)
LARGE = MigSlice("MIG-bbbb0000-2222-5222-8222-000000000000", gpu_instance=2, slices=4)
OTHER = MigSlice("MIG-cccc0000-3333-5333-8333-000000000000", gpu_instance=7, slices=1)
SHARED = "estimated:nvml-counter(mig share)"

READ = """
for m in meters(int(os.environ["COUNT"])):
    print(m.name, m.read().energy_j, m.uncertainty_ratio, m.method)
"""


@pytest.fixture
def stub(library, tmp_path):
    mig = {0: [SMALL, LARGE], 1: [OTHER]}
    return NvmlStub(tmp_path, library=library, count=2, watts=0.0, base_j=700.0, mig=mig)


@pytest.fixture
def show(stub, script):
    """Name, joules and the rest of each meter that a process gets."""

    def run(visible=None, count=1):
        env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        lines = script(stub, READ, COUNT=str(count), **env).finish()
        return [
            (name, float(joules), rest) for name, joules, rest in (s.split(" ", 2) for s in lines)
        ]

    return run


@pytest.mark.parametrize(
    "visible",
    [
        SMALL.uuid,
        SMALL.uuid.lower(),
        "MIG-aaaa",
        "MIG-GPU-00000000-0000-4000-8000-000000000000/1/0",  # the form of drivers before 470
        f"{SMALL.uuid},GPU-00000001",  # beside a slice CUDA shows no whole board
        None,  # CUDA takes the first slice of all
        "0",
        "GPU-00000000",
        "0,1",
    ],
)
def test_a_slice_is_metered_by_its_part_of_the_board_and_says_so(show, visible):
    """FIELD E5: addressed by UUID; three of seven compute slices of the board's 700 J."""
    assert show(visible) == [(SMALL.uuid, pytest.approx(300.0), f"None {SHARED}")]


def test_slices_of_one_board_in_one_process_add_up(show):
    """FIELD E5, E8: each has its own part, and all of a board's slices are the board."""
    shown = show(f"{LARGE.uuid},{SMALL.uuid}", count=2)
    assert [name for name, _, _ in shown] == [LARGE.uuid, SMALL.uuid]
    assert sum(joules for _, joules, _ in shown) == pytest.approx(700.0)


def test_slices_of_several_boards_each_follow_their_own(stub, show):
    """FIELD E5, E10."""
    stub.set_counter(7000.0, index=1)
    shown = show(f"{OTHER.uuid},{LARGE.uuid}", count=2)
    assert [joules for _, joules, _ in shown] == [pytest.approx(1000.0), pytest.approx(400.0)]


def test_compute_instances_of_one_gpu_instance_are_not_counted_twice(tmp_path, library, script):
    """FIELD E8: two processes on halves of one GPU instance get its part once."""
    halves = [
        MigSlice(f"MIG-{i}", gpu_instance=1, compute_instance=i, slices=2, compute_slices=1)
        for i in range(2)
    ]
    stub = NvmlStub(tmp_path, library=library, watts=0.0, base_j=700.0, mig={0: halves})
    joules = []
    for half in halves:
        lines = script(stub, READ, COUNT="1", CUDA_VISIBLE_DEVICES=half.uuid).finish()
        joules.append(float(lines[0].split()[1]))
    assert sum(joules) == pytest.approx(200.0)


def test_a_slice_of_a_board_without_a_counter_is_metered_by_power(stub, script):
    """FIELD E5, E13: the share is named, and so is what it is a share of."""
    stub.set_error("nvmlDeviceGetTotalEnergyConsumption", stubs.NOT_SUPPORTED)
    stub.set_power(140.0)
    code = """
(meter,) = meters()
meter.read()
clock.at_s += 5
print(meter.method, meter.read().energy_j)
"""
    (line,) = script(stub, code, CUDA_VISIBLE_DEVICES=LARGE.uuid).finish()
    assert line == "estimated:nvml-power-average(mig share) 400.0"


def test_a_board_with_mig_on_and_no_slice_is_no_device(tmp_path, library, script):
    """FIELD E10: CUDA does not show it, so it is not metered."""
    stub = NvmlStub(tmp_path, library=library, count=2, watts=0.0, mig={0: []})
    lines = script(stub, READ, COUNT="1").finish()
    assert lines[0].split()[0] == stub.uuids[1]


def test_an_index_is_refused_where_only_some_boards_have_mig_on(tmp_path, library, script):
    """FIELD E5: it is open what CUDA counts there, and nothing is guessed; a UUID is clear."""
    stub = NvmlStub(tmp_path, library=library, count=2, watts=0.0, mig={0: [SMALL]})
    code = """
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
try: meters()
except MeterUnavailable as error: print(error)
os.environ["CUDA_VISIBLE_DEVICES"] = "GPU-00000001"
print(meters()[0].method)
"""
    lines = script(stub, code).finish()
    assert "some boards have MIG mode on" in lines[0]
    assert "nvidia-smi -L" in lines[0]
    assert lines[1] == "measured:nvml-counter"


def test_a_slice_that_is_not_there_is_said_with_a_way_out(stub, script):
    """FIELD E5: never a ValueError."""
    code = "try: meters()\nexcept MeterUnavailable as error: print(error)\n"
    (line,) = script(stub, code, CUDA_VISIBLE_DEVICES="MIG-dddd").finish()
    assert "'MIG-dddd' shows 0 of the 2 board(s)" in line


def test_a_slice_on_a_lost_board_is_a_gap_and_recovers(stub, script):
    """FIELD E17."""
    code = """
(meter,) = meters()
ask(meter.read() is not None)
ask(meter.read())
clock.at_s += 2
print(meter.read() is not None)
"""
    running = script(stub, code, CUDA_VISIBLE_DEVICES=LARGE.uuid)
    assert running.says() == "True"
    stub.set_error("nvmlDeviceGetTotalEnergyConsumption", stubs.GPU_IS_LOST)
    running.go()
    assert running.says() == "None"
    stub.clear_errors()
    running.go()
    assert running.finish() == ["True"]
