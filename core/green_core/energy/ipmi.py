"""The whole node's energy by its management controller: ``ipmitool dcmi power reading``.

The tool takes a tenth of a second and more, so it is run in the background, at most once a second
and only while somebody reads the meter.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence

from green_core.clock import SteadyClock
from green_core.energy.background import BackgroundReader
from green_core.energy.integral import PowerIntegral
from green_core.errors import MeterUnavailable
from green_core.values import EngineInfo, Meter, MeterReading

METHOD = "measured:ipmi(node)"
PERIOD_S = 1.0
COMMAND = ("ipmitool", "dcmi", "power", "reading")
_TIMEOUT_S = 5.0
_START_S = 10.0

_POWER = re.compile(r"Instantaneous power reading:\s*(\d+)\s*Watts")
_STATE = re.compile(r"Power reading state is:\s*(\w+)")
_OTHERWISE = 'or set energy.meter to "hwmon", "rapl" or "model"'


def parse_power_w(text: str) -> float:
    """The node's power from the tool's answer; raises ``ValueError`` for any other."""
    power, state = _POWER.search(text), _STATE.search(text)
    if power is None:
        raise ValueError(f"no instantaneous power in {text.strip()[:200]!r}")
    if state is not None and state[1].lower() != "activated":
        raise ValueError(f"the power reading is {state[1]}")
    if int(power[1]) == 0:  # a machine that answers draws some (FIELD E2)
        raise ValueError("the power reading is 0 W")
    return float(power[1])


def ipmi_meters(
    engine: EngineInfo,
    *,
    now_s: Callable[[], float] | None = None,
    command: Sequence[str] = COMMAND,
) -> list[Meter]:
    """One meter of the whole node. Raises ``MeterUnavailable`` when the tool does not answer."""
    if shutil.which(command[0]) is None:
        raise MeterUnavailable(
            f"{command[0]} was not found. Install it (package ipmitool), {_OTHERWISE}"
        )
    clock_s = now_s or SteadyClock().now
    integral = PowerIntegral()

    def take() -> MeterReading:
        begun_s = clock_s()
        power_w = parse_power_w(_run(command))
        # The controller looks at some moment while the tool runs.
        return integral.add(0.5 * (begun_s + clock_s()), power_w)

    reader = BackgroundReader(
        take, every_s=PERIOD_S, late_s=_TIMEOUT_S, now_s=clock_s, name="greenserve-ipmi"
    )
    if reader.wait(_START_S) is None:
        problem = reader.problem or f"no answer within {_START_S:g} s"
        reader.close()
        raise MeterUnavailable(
            f"{' '.join(command)} gives no power: {problem}. It needs a controller with DCMI, the "
            f"module ipmi_devintf and a user that may open /dev/ipmi0; {_OTHERWISE}"
        )
    return [Meter("node", METHOD, PERIOD_S, reader.read, reader.close)]


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        list(command), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise OSError((done.stderr or done.stdout).strip()[:200] or f"exit {done.returncode}")
    return done.stdout
