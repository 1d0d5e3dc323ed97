import os
import signal
import stat
import subprocess
import sys

import pytest

from green_core.energy.ownership import claim, runtime_folder
from green_core.errors import MeterUnavailable

HOLD = """
import sys
from pathlib import Path
from green_core.energy.ownership import claim
held = claim(sys.argv[2:], Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_device_has_one_owner_at_a_time(tmp_path):
    """FIELD E8: several engines on one machine never count a device twice."""
    first = claim(["GPU-1"], tmp_path)
    with pytest.raises(MeterUnavailable, match=rf"GPU-1.*process {os.getpid()}\b.*model"):
        claim(["GPU-1"], tmp_path)
    first.release()
    first.release()
    claim(["GPU-1"], tmp_path).release()


def test_a_claim_is_for_all_devices_or_none(tmp_path):
    held = claim(["GPU-2"], tmp_path)
    with pytest.raises(MeterUnavailable):
        claim(["GPU-1", "GPU-2"], tmp_path)
    claim(["GPU-1"], tmp_path).release()
    held.release()


def test_a_killed_process_leaves_no_claim_behind(tmp_path):
    """FIELD E8: the kernel drops the lock, even on SIGKILL."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), "GPU-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(MeterUnavailable, match=f"process {owner.pid}"):
            claim(["GPU-1"], tmp_path)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    claim(["GPU-1"], tmp_path).release()


def test_a_forked_child_does_not_keep_its_parents_claim(tmp_path):
    """FIELD E16: a child that outlives the owner must not block the next one."""
    code = HOLD.replace("sys.stdin.read()", "import os\npid = os.fork()\n") + (
        "if pid == 0:\n    print('child', flush=True)\n    sys.stdin.read()\nos._exit(0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), "GPU-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert [owner.stdout.readline(), owner.stdout.readline()] == ["held\n", "child\n"]
        owner.wait()  # the child still lives: it waits for its input
        claim(["GPU-1"], tmp_path).release()
        owner.stdin.close()


def test_the_folder_is_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = runtime_folder()
    assert folder == tmp_path / "greenserve"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_without_a_runtime_folder_the_temporary_one_is_per_user(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert runtime_folder() == tmp_path / f"greenserve-{os.getuid()}"


def test_a_folder_that_is_a_link_is_refused(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "greenserve").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(MeterUnavailable, match="XDG_RUNTIME_DIR"):
        runtime_folder()
