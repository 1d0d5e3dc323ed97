"""The watcher sees every way in which people change a config, and sleeps in between."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from green_core.watch import POLL_S, Watcher, folders_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

LONG_S = 60.0  # given to a loaded machine; a watcher that misses a change takes for ever


class Reader:
    """What the runtime does: read the file anew when told."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.calls = 0
        self.text = self._read()

    def _read(self) -> str | None:
        try:
            return self.file.read_text()
        except OSError:
            return None

    def __call__(self) -> None:
        self.text = self._read()
        self.calls += 1

    def sees(self, text: str | None) -> bool:
        return _eventually(lambda: self.text == text)


def _eventually(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + LONG_S
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def _watching(file: Path) -> Iterator[tuple[Watcher, Reader]]:
    reader = Reader(file)
    watcher = Watcher(lambda: folders_of(str(file)), reader)
    try:
        yield watcher, reader
    finally:
        watcher.close()


def _healthy(watcher: Watcher) -> bool:
    return _eventually(lambda: not watcher.polling)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "conf" / "green.toml"
    file.parent.mkdir()
    file.write_text("0")
    return file


def _replace_link(link: Path, target: str) -> None:
    fresh = link.with_name(link.name + ".fresh")
    fresh.symlink_to(target)
    fresh.replace(link)


def test_edits_and_renames_over_the_file_are_seen(config):
    with _watching(config) as (watcher, reader):
        config.write_text("1")
        assert reader.sees("1")
        config.with_name("draft").write_text("2")
        config.with_name("draft").replace(config)
        assert reader.sees("2")
        config.unlink()
        assert reader.sees(None)
        assert not watcher.polling


def test_an_edit_behind_a_chain_of_links_is_seen(tmp_path, config):
    middle = tmp_path / "middle"
    target = tmp_path / "target" / "real.toml"
    middle.mkdir()
    target.parent.mkdir()
    target.write_text("0")
    (middle / "green.toml").symlink_to("../target/real.toml")
    config.unlink()
    config.symlink_to(middle / "green.toml")
    with _watching(config) as (watcher, reader):
        target.write_text("1")
        assert reader.sees("1")
        (target.parent / "other.toml").write_text("2")
        _replace_link(middle / "green.toml", "../target/other.toml")
        assert reader.sees("2")
        elsewhere = tmp_path / "elsewhere.toml"
        elsewhere.write_text("3")
        _replace_link(config, str(elsewhere))
        assert reader.sees("3")
        elsewhere.write_text("4")
        assert reader.sees("4")
        assert not watcher.polling


def test_a_replaced_folder_is_seen_again_and_again(config):
    folder = config.parent
    with _watching(config) as (watcher, reader):
        for turn in range(5):
            old = folder.with_name(f"conf.{turn}")
            folder.rename(old)
            shutil.copytree(old, folder)
            assert _healthy(watcher)
            config.write_text(f"turn {turn}")
            assert reader.sees(f"turn {turn}")
            off = config.with_name("green.toml.off")
            calls = reader.calls
            off.touch()
            assert _eventually(lambda calls=calls: reader.calls > calls)
            off.unlink()
            assert _healthy(watcher)


def test_a_deleted_folder_is_polled_for_until_it_returns(config):
    with _watching(config) as (watcher, reader):
        for text in ("1", "2"):
            shutil.rmtree(config.parent)
            assert reader.sees(None)
            assert _eventually(lambda: watcher.polling)
            config.parent.mkdir()
            config.write_text(text)
            assert reader.sees(text)
            assert _healthy(watcher)


def test_a_folder_that_is_missing_at_the_start_is_seen_when_it_comes(tmp_path):
    file = tmp_path / "later" / "green.toml"
    with _watching(file) as (watcher, reader):
        assert watcher.polling
        file.parent.mkdir()
        file.write_text("1")
        assert reader.sees("1")
        assert _healthy(watcher)


def test_a_replaced_parent_folder_is_seen(tmp_path):
    file = tmp_path / "a" / "b" / "green.toml"
    file.parent.mkdir(parents=True)
    file.write_text("0")
    with _watching(file) as (watcher, reader):
        shutil.copytree(tmp_path / "a", tmp_path / "fresh")
        (tmp_path / "fresh" / "b" / "green.toml").write_text("1")
        (tmp_path / "a").rename(tmp_path / "old")
        (tmp_path / "fresh").rename(tmp_path / "a")
        assert reader.sees("1")
        assert _healthy(watcher)
        file.write_text("2")
        assert reader.sees("2")


def test_a_retargeted_link_to_the_folder_is_seen(tmp_path):
    for release in range(6):
        (tmp_path / f"release-{release}").mkdir()
        (tmp_path / f"release-{release}" / "green.toml").write_text(f"{release}")
    current = tmp_path / "current"
    current.symlink_to("release-0")
    with _watching(current / "green.toml") as (watcher, reader):
        for release in range(1, 6):
            _replace_link(current, f"release-{release}")
            assert reader.sees(f"{release}")
            (current / "green.toml").write_text(f"{release} edited")
            assert reader.sees(f"{release} edited")
        assert _healthy(watcher)


def test_many_config_map_swaps_are_seen(tmp_path):
    """Kubernetes: the file leads through ``..data``, which is renamed over."""
    mount = tmp_path / "mount"

    def publish(turn: int) -> None:
        version = mount / f"..{turn}"
        version.mkdir(parents=True)
        (version / "green.toml").write_text(f"{turn}")
        _replace_link(mount / "..data", version.name)
        if turn:
            shutil.rmtree(mount / f"..{turn - 1}")

    publish(0)
    (mount / "green.toml").symlink_to("..data/green.toml")
    with _watching(mount / "green.toml") as (watcher, reader):
        for turn in range(1, 30):
            publish(turn)
            assert reader.sees(f"{turn}")
        for turn in range(30, 80):  # faster than anyone can look
            publish(turn)
        assert reader.sees("79")
        assert _healthy(watcher)


def test_a_healthy_watch_asks_for_nothing_while_nothing_changes(config):
    """FIELD P15: idle adds no wake-ups, also after a folder was away."""
    asked = []

    def directories() -> list[str]:
        asked.append(1)
        return folders_of(str(config))

    reader = Reader(config)
    watcher = Watcher(directories, reader)
    try:
        shutil.rmtree(config.parent)
        assert reader.sees(None)
        config.parent.mkdir()
        config.write_text("1")
        assert reader.sees("1")
        assert _healthy(watcher)
        # What was under way when the file was read is over once this comes to rest.
        counts: list[int] = []
        assert _eventually(lambda: counts.append(len(asked)) or counts[-100:-99] == counts[-1:])
        before = (len(asked), reader.calls)
        time.sleep(2.5 * POLL_S)
        assert (len(asked), reader.calls) == before
        assert not watcher.polling
    finally:
        watcher.close()


def test_a_burst_comes_as_few_calls(config):
    entered, release = threading.Event(), threading.Event()
    calls = []

    def slow() -> None:
        calls.append(1)
        entered.set()
        release.wait(LONG_S)

    watcher = Watcher(lambda: [str(config.parent)], slow)
    try:
        config.write_text("1")
        assert entered.wait(LONG_S)
        for number in range(1000):
            config.with_name(f"{number}").touch()
        release.set()
        assert _eventually(lambda: len(calls) > 1)
    finally:
        watcher.close()
    assert len(calls) <= 3


def test_a_listener_that_raises_does_not_end_the_watch(config):
    calls = []

    def faulty() -> None:
        calls.append(1)
        raise ValueError("a listener's fault")

    watcher = Watcher(lambda: [str(config.parent)], faulty)
    try:
        config.write_text("1")
        assert _eventually(lambda: len(calls) > 0)
        before = len(calls)
        config.write_text("2")
        assert _eventually(lambda: len(calls) > before)
    finally:
        watcher.close()


def test_neither_closing_nor_swapping_leaks_descriptors(config):
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for _ in range(3):
        with _watching(config) as (watcher, reader):
            config.parent.rename(config.parent.with_name("away"))
            assert reader.sees(None)
            config.parent.with_name("away").rename(config.parent)
            assert reader.sees("0")
        watcher.close()  # a second time does nothing
    assert _eventually(lambda: descriptors() <= before)


def test_without_inotify_the_slow_poll_sees_changes(config, monkeypatch):
    monkeypatch.setattr("green_core.watch._open_inotify", lambda *places: (None, False))
    with _watching(config) as (watcher, reader):
        assert watcher.polling
        config.write_text("changed")
        assert reader.sees("changed")
        assert watcher.polling
