import sys
import time

import pytest

from green_core.energy.ipmi import METHOD, ipmi_meters, parse_power_w
from green_core.errors import MeterUnavailable
from green_core.testing.builders import engine_info

# The tool's layout (ipmitool 1.8, lib/ipmi_dcmi.c); the values are made up.
ANSWER = """
    Instantaneous power reading:                   {watts} Watts
    Minimum during sampling period:                 90 Watts
    Maximum during sampling period:                812 Watts
    Average power reading over sample period:      301 Watts
    IPMI timestamp:                           Mon Nov 30 10:00:00 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   {state}


"""


def answer(watts=312, state="activated"):
    return ANSWER.format(watts=watts, state=state)


def test_the_instantaneous_power_is_read():
    assert parse_power_w(answer()) == 312.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (answer(state="deactivated"), "is deactivated"),
        (answer(watts=0), "0 W"),
        ("", "no instantaneous power"),
        ("DCMI request failed because: Invalid command (c1)", "Invalid command"),
    ],
)
def test_any_other_answer_is_refused(text, words):
    """FIELD E2: never 0 J."""
    with pytest.raises(ValueError, match=words):
        parse_power_w(text)


def tool(folder, code):
    path = folder / "ipmitool.py"
    path.write_text(code)
    return [sys.executable, str(path)]


def test_the_controllers_power_is_added_up_in_the_background(tmp_path):
    at_s = 1000.0
    command = tool(tmp_path, f"print('''{answer(watts=200)}''')")
    (meter,) = ipmi_meters(engine_info(), now_s=lambda: at_s, command=command)
    try:
        assert meter.read().energy_j == 0.0
        at_s += 2.0
        give_up_s = time.monotonic() + 30.0
        while (reading := meter.read()) is None or reading.energy_j == 0.0:
            assert time.monotonic() < give_up_s
            time.sleep(0.01)
        assert reading.energy_j == pytest.approx(400.0)
        assert (meter.name, meter.method) == ("node", METHOD)
        assert METHOD == "measured:ipmi(node)"
    finally:
        meter.close()


def test_a_tool_that_fails_is_unavailable_with_its_words(tmp_path):
    """FIELD E2, E6."""
    words = "Could not open device at /dev/ipmi0: No such file or directory"
    command = tool(tmp_path, f"import sys; sys.exit({words!r})")
    with pytest.raises(MeterUnavailable, match="Could not open device.*ipmi_devintf"):
        ipmi_meters(engine_info(), command=command)


def test_a_machine_without_the_tool_is_unavailable():
    """FIELD E2."""
    with pytest.raises(MeterUnavailable, match="was not found. Install it"):
        ipmi_meters(engine_info(), command=["ipmitool-is-not-here"])
