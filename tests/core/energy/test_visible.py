import pytest
from hypothesis import given
from hypothesis import strategies as st

from green_core.energy.visible import Board, Device, Slice, visible_devices
from green_core.errors import MeterUnavailable

UUIDS = ["GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb3333"]
ALIKE = [Board(uuid, "H100") for uuid in UUIDS]
MIXED = [Board("GPU-slow", "T4"), Board("GPU-fast", "H100"), Board("GPU-other", "H100")]
SLICES = (Slice("MIG-1", 1, 0, 3 / 7), Slice("MIG-2", 2, 0, 4 / 7))
SLICED = [Board("GPU-a", "H100", True, SLICES), Board("GPU-b", "H100", True, ())]


def shown(value, boards=ALIKE, count=None, **environment):
    """UUIDs of the devices; without ``count``, as many as there are."""
    if value is not None:
        environment["CUDA_VISIBLE_DEVICES"] = value
    if count is not None:
        return [device.uuid for device in visible_devices(environment, boards, count)]
    for most in range(len(boards) + 2, 0, -1):
        try:
            return [device.uuid for device in visible_devices(environment, boards, most)]
        except MeterUnavailable:
            continue
    return []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-bbbb3333,0", [2, 0]),
        ("gpu-bbbb", [2]),
        ("GPU-aaaa", []),  # ambiguous
        ("0,-1,2", [0]),
        ("0,9,2", [0]),
        ("0,,2", [0]),
        ("1,1", [1]),
        ("1,GPU-aaaa2222,2", [1]),  # the same board by another name
        ("0x1", []),
        ("²", []),
        ("none", []),
    ],
)
def test_only_devices_that_cuda_would_show_are_metered(value, expected):
    """FIELD E10: never the whole node for one of its engines."""
    assert shown(value) == [UUIDS[i] for i in expected]


def test_an_engine_gets_the_first_devices_that_it_uses():
    """FIELD E10."""
    assert shown("2,1,0", count=2) == [UUIDS[2], UUIDS[1]]


@pytest.mark.parametrize("value", ["0", "1,0", None])
def test_an_index_is_not_guessed_where_boards_differ(value):
    """FIELD E10: by default CUDA counts the fastest board first, NVML the first one on the bus."""
    with pytest.raises(MeterUnavailable, match=r"T4.*CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        shown(value, MIXED, count=1)


@pytest.mark.parametrize(
    ("value", "order", "count", "expected"),
    [
        ("0", "PCI_BUS_ID", 1, ["GPU-slow"]),
        (None, "PCI_BUS_ID", 2, ["GPU-slow", "GPU-fast"]),
        ("GPU-fast", "", 1, ["GPU-fast"]),
        (None, "FASTEST_FIRST", 3, ["GPU-slow", "GPU-fast", "GPU-other"]),
        ("2,1,0", "", 3, ["GPU-other", "GPU-fast", "GPU-slow"]),
    ],
)
def test_where_boards_differ_a_clear_answer_is_used(value, order, count, expected):
    """FIELD E10: in PCI order, by UUID, or where all boards are used in any case."""
    environment = {"CUDA_DEVICE_ORDER": order} if order else {}
    assert shown(value, MIXED, count=count, **environment) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["MIG-1"]),
        ("0", ["MIG-1"]),
        ("GPU-a", ["MIG-1"]),
        ("1", []),  # MIG mode is on, and no slice was made
        ("MIG-2,MIG-1", ["MIG-2", "MIG-1"]),
        ("MIG-GPU-a/2/0", ["MIG-2"]),
        ("MIG-GPU-a/2/1", []),
        ("MIG-2,MIG-GPU-a/2/0,MIG-1", ["MIG-2"]),  # the same slice twice ends the list
        ("MIG-", []),  # ambiguous
        ("MIG-2,0", ["MIG-2"]),
        ("0,MIG-2", ["MIG-2"]),
    ],
)
def test_slices_are_named_by_uuid_or_place_and_otherwise_the_first_is_taken(value, expected):
    """FIELD E5."""
    assert shown(value, SLICED) == expected


def test_a_slice_knows_its_board_and_its_method():
    """FIELD E5, E13."""
    (device,) = visible_devices({}, SLICED, 1)
    assert device == Device("MIG-1", "GPU-a", 3 / 7)
    assert device.method("nvml-counter") == "estimated:nvml-counter(mig share)"
    assert Device("GPU-b", "GPU-b").method("nvml-counter") == "measured:nvml-counter"


entries = st.sampled_from(
    ["0", "1", "2", "9", "-1", "", "GPU-a", "GPU-b", "GPU-", "MIG-1", "MIG-2", "MIG-GPU-a/1/0", "x"]
)
machines = st.sampled_from([ALIKE, MIXED, SLICED, [*SLICED, *ALIKE], []])


@given(st.none() | st.lists(entries).map(",".join), machines, st.integers(1, 4))
def test_any_list_gives_known_devices_once_each_or_is_refused_in_words(value, boards, count):
    """FIELD E5, E10: no value of the variable breaks the start."""
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    try:
        devices = visible_devices(environment, boards, count)
    except MeterUnavailable:
        return
    assert len({device.uuid for device in devices}) == count
    known = {b.uuid for b in boards} | {s.uuid for b in boards for s in b.slices}
    assert {device.uuid for device in devices} <= known
    per_board = {d.board_uuid: 0.0 for d in devices}
    for device in devices:
        per_board[device.board_uuid] += device.share
    assert all(share <= 1.0 + 1e-9 for share in per_board.values())
