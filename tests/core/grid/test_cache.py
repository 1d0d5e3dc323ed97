"""What a live source said, on disk."""

import os
import stat

import msgspec
import pytest

from green_core.config import CarbonConfig
from green_core.grid.cache import MAX_BYTES, Cache, PollState, cache_folder, question_key
from green_core.grid.source import Slot, Snapshot

CARBON = CarbonConfig(source="uk", zone="GB")
STATE = PollState(at_s=1000.0, next_at_s=2800.0)
SAID = Snapshot("service", "GB", "average", "lifecycle", "CC0", 1000.0, (Slot(0.0, 1800.0, 123.4),))


@pytest.fixture
def folder(live_folders):
    return live_folders


def cache(carbon=CARBON, key="key"):
    return Cache(carbon, key)


def test_what_one_process_writes_another_reads_once(folder):
    writer, reader = cache(), cache()
    writer.write(STATE, SAID)
    assert (reader.newer_snapshot(), reader.newer_state()) == (SAID, STATE)
    assert (reader.newer_snapshot(), reader.newer_state()) == (None, None)
    assert (writer.newer_snapshot(), writer.newer_state()) == (None, None)
    writer.write(msgspec.structs.replace(STATE, failures=1))
    assert reader.newer_state().failures == 1
    assert reader.newer_snapshot() is None


def test_files_are_readable_for_their_user_alone(folder):
    umask = os.umask(0)
    try:
        cache().write(STATE, SAID)
    finally:
        os.umask(umask)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert (modes, stat.S_IMODE(folder.stat().st_mode)) == ({0o600}, 0o700)
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{}",
        b"null",
        b"<html>",
        b"\xff\xfe",
        b'{"source": "service", "zone": "GB", "kind": "average", "basis": "lifecycle", ',
        msgspec.json.encode(msgspec.structs.replace(SAID, kind="marginal")),
        msgspec.json.encode(msgspec.structs.replace(SAID, history=())),
        msgspec.json.encode(msgspec.structs.replace(SAID, history=SAID.history * 2)),
    ],
)
def test_a_damaged_file_is_as_good_as_none(folder, damage):
    cache().write(STATE, SAID)
    for path in folder.iterdir():
        path.write_bytes(damage)
    reader = cache()
    assert (reader.newer_snapshot(), reader.newer_state()) == (None, None)
    reader.write(STATE, SAID)
    assert cache().newer_snapshot() == SAID


def test_links_pipes_and_folders_are_not_followed_nor_waited_for(folder):
    cache().write(STATE, SAID)
    data, state = sorted(folder.iterdir())
    aside = folder.parent / "aside"
    data.rename(aside)
    data.symlink_to(aside)
    state.unlink()
    os.mkfifo(state)
    reader = cache()
    assert (reader.newer_snapshot(), reader.newer_state()) == (None, None)
    data.unlink()
    data.mkdir()
    assert cache().newer_snapshot() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_believed(folder):
    cache().write(STATE, SAID)
    for path in folder.iterdir():
        os.chown(path, 12345, 12345)
    assert (cache().newer_snapshot(), cache().newer_state()) == (None, None)


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(folder, monkeypatch):
    writer = cache()
    writer.write(STATE, SAID)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        writer.write(STATE, SAID)
    assert cache().newer_snapshot() == SAID
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_was_removed_is_made_again(folder):
    writer = cache()
    folder.rmdir()
    writer.write(STATE, SAID)
    assert cache().newer_state() == STATE


def test_the_configured_folder_is_used_then_the_users_then_that_of_the_locks(
    folder, tmp_path, monkeypatch, caplog
):
    named = tmp_path / "named" / "deep"
    assert cache_folder(CarbonConfig(cache_dir=str(named))) == named
    assert cache_folder(CARBON) == folder
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder(CARBON) == tmp_path / "home" / ".cache" / "greenserve"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_folder(CARBON) == tmp_path / "run" / "greenserve"
    assert not caplog.records
    blocked = CarbonConfig(cache_dir=str(tmp_path / "file" / "x"))
    assert cache_folder(blocked) == tmp_path / "run" / "greenserve"
    assert "carbon.cache_dir" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "watttime"},
        {"url": "http://localhost:1"},
        {"zone": "FR"},
        {"kind": "marginal"},
        {"basis": "direct"},
        {"query": "up"},
        {"username": "me"},
        {"allow_synthetic": True},
    ],
)
def test_another_question_is_another_cache(changes):
    """FIELD G9, G12: synthetic, marginal or foreign values are never read by mistake."""
    other = msgspec.structs.replace(CARBON, **changes)
    assert question_key(CARBON, "t") != question_key(other, "t")


def test_another_token_is_another_cache_and_the_token_is_not_in_its_name(folder):
    key = question_key(CARBON, "secret-token")
    assert key != question_key(CARBON, "other-token")
    assert key == question_key(msgspec.structs.replace(CARBON, timeout_s=1.0), "secret-token")
    assert "secret" not in key
    cache(key=key).write(STATE, SAID)
    assert not any(b"secret" in path.read_bytes() for path in folder.iterdir())


def test_what_is_no_file_of_ours_is_ignored_and_left_closed(folder):
    cache().write(STATE, SAID)
    path = folder / "carbon-key.json"
    path.unlink()
    path.mkdir()
    reader = cache()
    before = len(os.listdir("/proc/self/fd"))
    assert [reader.newer_snapshot() for _ in range(3)] == [None] * 3
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("text", ['{"x":' + "[" * 100_000, " " * (MAX_BYTES + 1)])
def test_a_cache_that_is_nested_or_huge_is_ignored(folder, text):
    cache().write(STATE, SAID)
    (folder / "carbon-key.json").write_text(text)
    assert cache().newer_snapshot() is None


def test_what_nobody_uses_any_more_is_removed(folder):
    cache(key="old").write(STATE, SAID)
    (folder / ".carbon-key.json-torn").touch()
    (folder / "mine.json").touch()
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    cache().write(STATE, SAID)
    assert {path.name for path in folder.iterdir()} == {
        "carbon-key.json",
        "carbon-key.state.json",
        "mine.json",
    }


def test_users_and_periods_have_caches_of_their_own(monkeypatch):
    mine = question_key(CARBON, "token")
    assert question_key(msgspec.structs.replace(CARBON, poll_s=60.0), "token") != mine
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert question_key(CARBON, "token") != mine


def test_any_text_of_a_command_line_makes_a_question():
    keys = {question_key(msgspec.structs.replace(CARBON, zone=z), "") for z in ("\udcff", "\xff")}
    assert len(keys) == 2
