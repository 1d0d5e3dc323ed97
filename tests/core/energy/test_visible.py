import pytest

from green_core.energy.visible import visible_devices
from green_core.errors import MeterUnavailable

UUIDS = ["GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb3333"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-bbbb3333,0", [2, 0]),
        ("gpu-bbbb", [2]),
        ("GPU-aaaa", []),  # ambiguous
        ("0,-1,2", [0]),
        ("0,9,2", [0]),
        ("1,1", [1]),
        ("none", []),
    ],
)
def test_only_devices_that_cuda_would_show_are_metered(value, expected):
    """FIELD E10: never the whole node for one of its engines."""
    assert visible_devices(value, UUIDS) == expected


def test_a_mig_slice_is_left_to_the_model_and_said_so():
    """FIELD E5."""
    with pytest.raises(MeterUnavailable, match=r"MIG slice.*model"):
        visible_devices("MIG-1234", UUIDS)
