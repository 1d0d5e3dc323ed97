"""``energy.meter = "nvml"`` and ``"auto"`` with an NVIDIA device, and without."""

from green_core.testing.nvml import NOT_SUPPORTED

BUILD = """
from green_core.energy.build import open_meter
for wanted, device in (("auto", "h100"), ("nvml", "h100"), ("nvml", "cpu"), ("model", "h100")):
    try:
        meter = open_meter(EnergyConfig(meter=wanted), engine(device=device)).meter
        print(meter and meter.method)
        if meter:
            meter.close()
    except MeterUnavailable as error:
        print(error)
"""


def test_auto_takes_the_meter_and_a_cpu_engine_never_takes_a_gpu_meter(stub, script, tmp_path):
    lines = script(stub, BUILD, XDG_RUNTIME_DIR=str(tmp_path)).finish()
    assert lines[:2] == ["measured:nvml-counter", "measured:nvml-counter"]
    assert "runs on the CPU" in lines[2]
    assert lines[3] == "None"


def test_without_a_driver_auto_falls_back_and_nvml_is_refused(script, tmp_path):
    """FIELD E2: no meter is unavailable, never zero joules."""
    blocked = """
import pynvml
def absent(flags): raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
pynvml.nvmlInitWithFlags = absent
"""
    lines = script(None, blocked + BUILD, XDG_RUNTIME_DIR=str(tmp_path)).finish()
    assert lines[0] == "None"
    assert "--gpus all" in lines[1]


def test_only_a_counter_of_the_device_is_the_same_for_every_process(stub, script):
    """FIELD E8: a sum of power samples begins with its process, and cannot be shared as one."""
    stub.set_power(100.0)
    stub.set_error("nvmlDeviceGetTotalEnergyConsumption", NOT_SUPPORTED, index=1)
    code = "print(*[m.is_absolute for m in meters(3)])"
    assert script(stub, code).finish() == ["True False True"]


TRACK = """
from green_core.energy.track import CounterTrack
(meter,) = meters()
track = CounterTrack(method=meter.method, model_method="model", period_s=meter.period_s,
                     max_w=1000.0, max_gap_s=10.0, start_s=clock.at_s)
def settle():
    clock.at_s += 1.0
    stretch = track.observe(clock.at_s, meter.read())
    return None if stretch is None else (stretch.metered_j, track.gaps)
settle()
while True:
    ask(settle())
"""


def test_leaps_resets_and_wraps_of_nvmls_counter_are_gaps(stub, script):
    """FIELD E11, E17: from NVML to what is settled, no joule that nobody drew."""
    running = script(stub, TRACK, CUDA_VISIBLE_DEVICES="0")
    assert running.says() == "None"  # it has not moved
    shown = []
    for energy_j in (1100.0, 9e14, 9e14 + 100.0, 3.0, 103.0):
        stub.set_counter(energy_j)
        running.go()
        shown.append(running.says())
    assert shown == ["(100.0, 0)", "(None, 1)", "(100.0, 1)", "(None, 2)", "(100.0, 2)"]
    running.process.kill()
    running.process.communicate()
