import os
import signal
import stat
import subprocess
import sys

import pytest

from green_core.errors import GreenError
from green_core.locks import FileLock, runtime_folder

HOLD = """
import sys
from pathlib import Path
from green_core.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
print(lock.acquire(), flush=True)
sys.stdin.read()
"""


def hold(path, code=HOLD):
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_lock_is_held_by_one_at_a_time(tmp_path):
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.acquire()
    assert first.acquire()
    assert not second.acquire(wait_s=0.02)
    first.release()
    first.release()
    assert second.acquire()
    assert (first.is_held, second.is_held) == (False, True)
    second.release()


def test_a_killed_process_leaves_no_lock_behind(tmp_path):
    """FIELD E8: the kernel drops it, even on SIGKILL."""
    lock = FileLock(tmp_path / "lock")
    with hold(lock.path) as owner:
        assert owner.stdout.readline() == "True\n"
        assert not lock.acquire()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert lock.acquire(wait_s=5.0)
    lock.release()


def test_a_forked_child_does_not_keep_its_parents_lock(tmp_path):
    """FIELD E16: a child that outlives the owner must not block the next one."""
    code = HOLD.replace("sys.stdin.read()", "import os\npid = os.fork()\n") + (
        "if pid == 0:\n    print('child', flush=True)\n    sys.stdin.read()\nos._exit(0)\n"
    )
    lock = FileLock(tmp_path / "lock")
    with hold(lock.path, code) as owner:
        assert [owner.stdout.readline(), owner.stdout.readline()] == ["True\n", "child\n"]
        owner.wait()  # the child still lives: it waits for its input
        assert lock.acquire()
        lock.release()
        owner.stdin.close()


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        FileLock(tmp_path / "lock").acquire()


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
    with pytest.raises(GreenError, match="XDG_RUNTIME_DIR"):
        runtime_folder()
