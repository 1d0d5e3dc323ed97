"""Engines and meters are looked at in processes of their own."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from green_core.doctor import probes
from green_core.doctor.report import EngineReport, SeamReport
from green_core.testing.nvml import NvmlStub, build_stub

GOOD = """
import os, sys
def inspect():
    print("an engine that talks on stdout")
    os.write(1, b"and from C")
    return {"engine": "fake", "distribution": "fake-cpu", "version": "1.2", "verified": ["1.2"],
            "supported": True, "seams": [{"target": "fake:step", "ok": True, "problem": ""}],
            "pid": os.getpid()}
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Install an engine's pack, here and in child processes, whose module holds ``code``."""

    def install(code):
        folder = tmp_path / "site"
        info = folder / "fake_pack-1.dist-info"
        info.mkdir(parents=True)
        (folder / "fake_pack.py").write_text(code)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-pack\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[greenserve.engines]\nfake = fake_pack:inspect\n")
        path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
        monkeypatch.syspath_prepend(str(folder))

    return install


def wait_until(true):
    give_up_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def found(**options):
    """What is said of the engine, whatever else is installed."""
    return [each for each in probes.engines(**options) if each.engine == "fake"]


def test_an_engine_that_talks_on_stdout_is_read_all_the_same(engine):
    engine(GOOD)
    assert found() == [
        EngineReport("fake", "fake-cpu", "1.2", ("1.2",), True, (SeamReport("fake:step", True),))
    ]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os, signal\ndef inspect(): os.kill(os.getpid(), signal.SIGILL)", "signal 4"),
        ("def inspect(): raise OSError('no libcuda')", "exit code 1: OSError: no libcuda"),
        ("import nothing_of_this_name", "nothing_of_this_name"),
        ("def inspect(): return 3", "exit code 1"),
        ("import os\ndef inspect(): os._exit(0)", "cannot be read"),
    ],
)
def test_an_engine_that_crashes_on_import_is_said_and_the_doctor_goes_on(engine, code, words):
    engine(code)
    (report,) = found()
    assert words in report.problem
    assert not report.supported


def test_an_engine_that_hangs_is_ended_with_all_that_it_started(engine, tmp_path, monkeypatch):
    engine(
        "import os, subprocess, time\n"
        "def inspect():\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        f"    os.symlink(str(child.pid), {str(tmp_path / 'pid')!r})\n"
        "    time.sleep(600)\n"
    )
    pid = tmp_path / "pid"

    def time_out(process, timeout):
        wait_until(pid.is_symlink)
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", time_out)
    (report,) = found()
    assert "no answer within 180 s" in report.problem
    stat = Path("/proc") / pid.readlink() / "stat"
    wait_until(lambda: not stat.exists() or ") Z " in stat.read_text())


def test_a_pack_whose_engine_is_not_installed_is_not_mentioned(engine):
    engine("def inspect(): return {'engine': 'fake', 'version': ''}")
    assert found() == []


# --- meters ---------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_meter_that_can_be_read_is_named_and_nothing_is_opened_here(tmp_path, monkeypatch):
    """FIELD E16: NVML opened in this process would be useless in what it forks."""
    import pynvml

    stub = NvmlStub(tmp_path, library=build_stub(tmp_path), count=1)
    for name, value in {**stub.env(), "XDG_RUNTIME_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    (report,) = probes.meters(config=None, names=("nvml",))
    assert (report.meter, report.problem) == ("nvml", "")
    assert report.method == "measured:nvml-counter"
    assert pynvml.nvmlLib is None


def test_a_meter_that_cannot_be_had_says_why(tmp_path, monkeypatch):
    """FIELD E2."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (report,) = probes.meters(config=None, names=("no-such-meter",))
    assert report.method == ""
    assert "no-such-meter" in report.problem
