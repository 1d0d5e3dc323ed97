"""AMD meters against a scripted ``amdsmi`` with the real package's names and exceptions."""

import importlib.util
import os
import sys

import pytest

from green_core.energy.amd import amd_meters
from green_core.errors import MeterUnavailable
from green_core.testing import amd as fakes
from green_core.testing.amd import FakeAmdSmi, FakeDevice
from green_core.testing.builders import engine_info

VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


class Clock:
    at_s = 1000.0

    def __call__(self):
        return self.at_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def install(monkeypatch):
    def install(*devices, release=(7, 0), **env):
        smi = FakeAmdSmi(list(devices) or [FakeDevice()], release=release)
        monkeypatch.setitem(sys.modules, "amdsmi", smi.module())
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return smi

    return install


def meters(clock, count=1):
    return amd_meters(engine_info(device="AMD Instinct MI300X", device_count=count), now_s=clock)


@pytest.mark.parametrize("release", [(6, 2), (6, 3), (6, 4), (7, 0)])
def test_the_accumulator_of_every_release_is_read_in_joules(install, clock, release):
    """6.2 calls it power, 6.3 by both names, later ones energy_accumulator."""
    smi = install(FakeDevice(energy_j=1234.5), release=release)
    (meter,) = meters(clock)
    assert meter.method == "measured:amdsmi-counter"
    assert meter.name == smi.uuid(0)
    reading = meter.read()
    assert reading.energy_j == pytest.approx(1234.5, rel=1e-6)
    assert reading.at_s == 1000.0


@pytest.mark.parametrize(
    ("env", "count", "expected"),
    [
        ({}, 2, [0, 1]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, 2, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, 1, [3]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "3"}, 1, [1]),
        ({"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "1"}, 1, [3]),
        ({"ROCR_VISIBLE_DEVICES": FakeAmdSmi.rocm_name(2)}, 1, [2]),
    ],
)
def test_only_visible_devices_are_metered(install, clock, env, count, expected):
    """FIELD E10: ROCR cuts the list first, HIP (or CUDA) numbers what is left."""
    smi = install(*(FakeDevice(energy_j=1.0 + i) for i in range(4)), **env)
    found = meters(clock, count)
    assert [meter.name for meter in found] == [smi.uuid(i) for i in expected]
    readings = [meter.read().energy_j for meter in found]
    assert readings == pytest.approx([1.0 + i for i in expected], rel=1e-4)


@pytest.mark.parametrize("release", [(6, 2), (7, 0)])
def test_devices_are_found_by_their_serial_number_in_every_release(install, clock, release):
    smi = install(
        FakeDevice(), FakeDevice(), release=release, ROCR_VISIBLE_DEVICES=FakeAmdSmi.rocm_name(1)
    )
    assert meters(clock)[0].name == smi.uuid(1)


def test_numbers_mean_hips_order_not_that_of_the_list(install, clock):
    smi = install(FakeDevice(hip_id=1), FakeDevice(hip_id=0), HIP_VISIBLE_DEVICES="0")
    assert meters(clock)[0].name == smi.uuid(1)


@pytest.mark.parametrize(
    "device",
    [
        FakeDevice(energy_j=None, current_w=250.0),
        FakeDevice(energy_j=None, current_w=None, average_w=250.0),
        FakeDevice(energy_j=0.0, current_w=250.0),
        FakeDevice(energy_j=None, current_w=0xFFFFFFFF, average_w=250.0),
    ],
)
def test_a_device_without_a_counter_is_sampled_by_power(install, clock, device):
    """FIELD E3, E13: probed query by query, and the method says which one it was."""
    install(device)
    (meter,) = meters(clock)
    assert meter.method == "measured:amdsmi-power"
    meter.read()
    clock.at_s += 4
    assert meter.read().energy_j == pytest.approx(1000.0)
    clock.at_s -= 9
    assert meter.read().energy_j == pytest.approx(1000.0)


@pytest.mark.parametrize(
    "second", [FakeDevice(0.0, None, 0.0), FakeDevice(0.0, 0.0), FakeDevice(None, None)]
)
def test_a_second_die_that_shows_zero_is_unavailable_never_zero_joules(install, clock, second):
    """FIELD E2: MI250 reports both dies with the first."""
    install(FakeDevice(), second)
    with pytest.raises(MeterUnavailable, match="neither energy nor power"):
        meters(clock, 2)


def test_a_failing_counter_is_asked_again_then_is_a_gap_and_recovers(install, clock):
    """FIELD E4, E17."""
    smi = install()
    (meter,) = meters(clock)
    smi.errors["amdsmi_get_energy_count"] = fakes.RETRY
    before = smi.calls["amdsmi_get_energy_count"]
    assert meter.read() is None
    assert smi.calls["amdsmi_get_energy_count"] == before + 2
    assert meter.read() is None  # paused: not asked
    assert smi.calls["amdsmi_get_energy_count"] == before + 2
    smi.errors.clear()
    clock.at_s += 1.1
    assert meter.read().energy_j == pytest.approx(1000.0)
    smi.lose()
    assert meter.read() is None
    clock.at_s += 1.1
    assert meter.read() is not None


def test_pauses_between_attempts_grow_up_to_a_minute(install, clock):
    """FIELD E17: a driver that stays away is not asked all the time."""
    smi = install()
    (meter,) = meters(clock)
    smi.lose()
    smi.errors["amdsmi_init"] = fakes.DRIVER_NOT_LOADED
    assert meter.read() is None
    before = smi.calls["amdsmi_init"]
    for _ in range(3600):
        clock.at_s += 1
        assert meter.read() is None
    assert 50 < smi.calls["amdsmi_init"] - before < 80


@pytest.mark.parametrize("steps", [2**16 - 1, 2**32 - 1])
def test_a_counter_may_pass_the_numbers_that_mean_no_power(install, clock, steps):
    install(FakeDevice(energy_j=steps * FakeAmdSmi.RESOLUTION_UJ * 1e-6))
    assert meters(clock)[0].read() is not None


def test_a_garbled_answer_is_a_gap(install, clock):
    smi = install()
    (meter,) = meters(clock)
    smi.devices[0].energy_j = None
    assert meter.read() is None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # threads of other tests
def test_a_forked_child_opens_the_library_again(install, clock):
    """FIELD E16."""
    smi = install()
    (meter,) = meters(clock)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not smi.is_open and meter.read() is not None and smi.is_open else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert meter.read() is not None


def test_the_library_is_given_back_with_the_last_meter(install, clock):
    smi = install(FakeDevice(), FakeDevice())
    first, second = meters(clock, 2)
    first.close()
    assert second.read() is not None
    second.close()
    assert not smi.is_open


@pytest.mark.parametrize(
    ("env", "count", "words"),
    [
        ({"HIP_VISIBLE_DEVICES": ""}, 1, "show 0 of the 1"),
        ({}, 2, "uses 2 device"),
        ({"ROCR_VISIBLE_DEVICES": "7"}, 1, "ROCR_VISIBLE_DEVICES='7'"),
    ],
)
def test_too_few_visible_devices_are_said(install, clock, env, count, words):
    smi = install(**env)
    with pytest.raises(MeterUnavailable, match=words):
        meters(clock, count)
    assert not smi.is_open


def test_a_driver_that_refuses_is_unavailable_with_a_way_out(install, clock):
    """FIELD E6."""
    smi = install()
    smi.errors["amdsmi_init"] = fakes.NO_PERM
    with pytest.raises(MeterUnavailable, match=r"/dev/kfd.*energy.meter = .model.") as refused:
        meters(clock)
    assert "\n" not in str(refused.value)


def test_a_missing_package_is_unavailable_with_a_way_out(monkeypatch, clock):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(MeterUnavailable, match=r"greenserve\[amd\].*energy.meter = .model."):
        meters(clock)


def test_a_missing_library_is_unavailable_and_prints_nothing(monkeypatch, capfd, tmp_path, clock):
    """Without ROCm the real package prints two lines and raises ``KeyError`` on import."""
    (tmp_path / "amdsmi.py").write_text(
        'print("Unable to find libamd_smi.so")\nraise KeyError("libamd_smi.so")\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    with pytest.raises(MeterUnavailable, match="ROCM_PATH"):
        meters(clock)
    assert capfd.readouterr().out == ""


@pytest.mark.skipif(importlib.util.find_spec("amdsmi") is None, reason="needs the package amdsmi")
def test_a_real_device_is_read(clock):
    try:
        found = meters(clock)
    except MeterUnavailable as error:
        pytest.skip(f"no AMD device here: {error}")
    assert found[0].read() is not None
