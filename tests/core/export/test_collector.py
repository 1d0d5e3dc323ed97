"""Guarantees between the engine's processes and the API servers that are scraped."""

import json
import os
import signal

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from green_core.export.collector import GreenCollector
from green_core.export.prometheus import EngineMetrics
from green_core.export.runfiles import is_alive, metrics_path
from green_core.testing.builders import engine_info
from green_core.values import Settled

GAPS = "greenserve_meter_gaps_total"

API_SERVER = """
import sys
from prometheus_client import CollectorRegistry, generate_latest
from green_core.export.collector import GreenCollector
registry = CollectorRegistry()
registry.register(GreenCollector(sys.argv[1]))
sys.stdout.write(generate_latest(registry).decode())
"""
ENGINE_PROCESS = """
import sys, msgspec
from green_core.export.prometheus import EngineMetrics
from green_core.values import EngineInfo
engine = msgspec.json.decode(sys.stdin.readline(), type=EngineInfo)
metrics = EngineMetrics(engine, max_tenants=10)
metrics.add("greenserve_meter_gaps_total", float(sys.argv[2]))
metrics.observe("greenserve_step_overhead_seconds", 1e-4)
metrics.publish(sys.argv[1])
print("published", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def metrics():
    def make(engine_index=0):
        return EngineMetrics(engine_info(engine_index=engine_index), max_tenants=10)

    return make


@pytest.fixture
def start_engine(start_script, tmp_path):
    def start(engine_index, gaps):
        process = start_script(ENGINE_PROCESS, str(tmp_path), str(gaps))
        engine = engine_info(engine_index=engine_index)
        process.stdin.write(msgspec.json.encode(engine).decode() + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "published\n", process.stderr.read()
        return process

    return start


def gaps_by_engine(run_dir, collector=None):
    found = {}
    for family in (collector or GreenCollector(run_dir)).collect():
        for sample in family.samples:
            if sample.name == GAPS:
                assert sample.labels["engine"] not in found, "a series is shown twice"
                found[sample.labels["engine"]] = sample.value
    return found


def files(run_dir):
    return sorted(os.listdir(run_dir))


def test_a_scrape_shows_what_the_engine_counted(tmp_path, metrics, make_record):
    engine_metrics = metrics()
    engine_metrics.settled(Settled((make_record(), make_record())))
    engine_metrics.publish(tmp_path)
    registry = CollectorRegistry()
    registry.register(GreenCollector(tmp_path))
    assert generate_latest(registry) == engine_metrics.render()


def test_two_api_servers_show_the_same_totals_of_all_engines(tmp_path, start_engine, start_script):
    for engine_index, gaps in ((0, 3), (1, 4)):
        start_engine(engine_index, gaps)
    first, second = (start_script(API_SERVER, str(tmp_path)) for _ in range(2))
    scrape, errors = first.communicate(timeout=60)
    assert (scrape, errors) == second.communicate(timeout=60)
    assert f'{GAPS}{{engine="0"}} 3.0' in scrape
    assert f'{GAPS}{{engine="1"}} 4.0' in scrape
    assert scrape.count(f"# TYPE {GAPS} counter") == 1


@pytest.mark.parametrize("reap", [True, False])
def test_the_file_of_a_dead_engine_is_skipped_and_removed(tmp_path, start_engine, metrics, reap):
    """FIELD P28. A process that nobody has waited for still has its pid (a zombie)."""
    metrics(1).publish(tmp_path)
    engine = start_engine(0, 3)
    (tmp_path / f".metrics-0-{engine.pid}.prom.tmp").write_bytes(b"half a li")
    assert set(gaps_by_engine(tmp_path)) == {"0"}
    engine.send_signal(signal.SIGKILL)
    if reap:
        engine.wait()
    else:
        os.waitid(os.P_PID, engine.pid, os.WEXITED | os.WNOWAIT)
        os.unlink(tmp_path / f".metrics-0-{engine.pid}.prom.tmp")
    assert gaps_by_engine(tmp_path) == {}
    assert files(tmp_path) == [f"metrics-1-{os.getpid()}.prom"]


def test_a_reused_pid_does_not_bring_a_dead_engine_back(tmp_path, metrics):
    engine_metrics = metrics()
    engine_metrics.add(GAPS)
    engine_metrics.publish(tmp_path)
    path = metrics_path(tmp_path, 0, os.getpid())
    header, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(header + b"7\n" + rest)  # another start time
    if not os.path.exists("/proc/self/stat"):
        pytest.skip("the system does not tell when a process started")
    assert not is_alive(os.getpid(), path.read_bytes())
    assert gaps_by_engine(tmp_path) == {}


def test_of_two_processes_with_one_index_the_newest_is_shown(tmp_path, start_engine, metrics):
    """An engine that is being replaced must not double its series."""
    start_engine(0, 3)
    engine_metrics = metrics()
    engine_metrics.add(GAPS, 8)
    engine_metrics.publish(tmp_path)
    newest = metrics_path(tmp_path, 0, os.getpid())
    for path in tmp_path.iterdir():
        os.utime(path, ns=(1, 2 if path == newest else 1))
    assert gaps_by_engine(tmp_path) == {"0": 8.0}


def test_a_scrape_follows_the_newest_publication(tmp_path, metrics):
    engine_metrics, collector = metrics(), GreenCollector(tmp_path)
    for expected in (1.0, 2.0, 3.0):
        engine_metrics.add(GAPS)
        engine_metrics.publish(tmp_path)
        assert gaps_by_engine(tmp_path, collector) == {"0": expected}
        assert gaps_by_engine(tmp_path, collector) == {"0": expected}


def test_an_unchanged_file_is_parsed_once(tmp_path, metrics, monkeypatch):
    metrics().publish(tmp_path)
    collector = GreenCollector(tmp_path)
    list(collector.collect())
    monkeypatch.setattr("green_core.export.collector._parse", None)
    assert list(collector.collect())


def test_nothing_is_written_while_nothing_changes(tmp_path, metrics):
    """FIELD P15: an idle engine adds no work."""
    engine_metrics = metrics()
    assert engine_metrics.publish(tmp_path) is True
    assert engine_metrics.publish(tmp_path) is False
    engine_metrics.set("greenserve_held_requests", 1)
    assert engine_metrics.publish(tmp_path) is True


def test_a_removed_file_comes_back_with_the_next_publication(tmp_path, metrics):
    engine_metrics = metrics()
    engine_metrics.publish(tmp_path)
    metrics_path(tmp_path, 0, os.getpid()).unlink()
    assert engine_metrics.publish(tmp_path) is True
    assert len(files(tmp_path)) == 1


def test_a_failed_publication_is_told_tried_again_and_leaves_no_part(
    tmp_path, metrics, monkeypatch
):
    engine_metrics = metrics()
    with monkeypatch.context() as context:
        context.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            engine_metrics.publish(tmp_path)
    assert files(tmp_path) == []
    assert engine_metrics.publish(tmp_path) is True


def test_an_orderly_exit_leaves_no_file(tmp_path, metrics):
    engine_metrics = metrics()
    engine_metrics.publish(tmp_path)
    engine_metrics.withdraw(tmp_path)
    engine_metrics.withdraw(tmp_path)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"{", b'x{a="', b"# TYPE\n# TYPE x\n", b"a b c d\n", b"\0" * 99]
)
def test_a_damaged_file_costs_no_other_metric(tmp_path, metrics, content):
    engine_metrics = metrics()
    engine_metrics.add(GAPS)
    engine_metrics.publish(tmp_path)
    metrics_path(tmp_path, 1, os.getpid()).write_bytes(content)
    assert gaps_by_engine(tmp_path) == {"0": 1.0}


def test_files_of_others_are_left_alone(tmp_path):
    for name in ("notes.prom", "metrics-x-1.prom", "off"):
        (tmp_path / name).write_text("x 1\n")
    assert gaps_by_engine(tmp_path) == {}
    assert len(files(tmp_path)) == 3


def test_no_engine_yet_is_an_empty_scrape(tmp_path):
    assert list(GreenCollector(tmp_path / "not-there-yet").collect()) == []


def test_a_second_collector_on_one_registry_is_refused(tmp_path):
    """It would count everything twice."""
    registry = CollectorRegistry()
    registry.register(GreenCollector(tmp_path))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(GreenCollector(tmp_path))


def test_the_engines_own_multiprocess_folder_is_untouched(tmp_path, start_script, engine):
    """FIELD P28: with PROMETHEUS_MULTIPROC_DIR set, ours are in no file of the engine's."""
    folder, run_dir = tmp_path / "engine", tmp_path / "run"
    folder.mkdir()
    run_dir.mkdir()
    script = """
import os, sys
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
import msgspec
Counter("engine_own", "the engine's").inc()
before = {f: open(os.path.join(sys.argv[1], f), "rb").read() for f in os.listdir(sys.argv[1])}
from green_core.export.collector import GreenCollector
from green_core.export.prometheus import EngineMetrics
from green_core.values import EngineInfo
engine = msgspec.json.decode(sys.stdin.readline(), type=EngineInfo)
metrics = EngineMetrics(engine, max_tenants=10)
metrics.add("greenserve_meter_gaps_total")
metrics.observe("greenserve_step_overhead_seconds", 1e-4)
metrics.publish(sys.argv[2])
registry = CollectorRegistry()
MultiProcessCollector(registry)
registry.register(GreenCollector(sys.argv[2]))
text = generate_latest(registry).decode()
after = {f: open(os.path.join(sys.argv[1], f), "rb").read() for f in os.listdir(sys.argv[1])}
print(msgspec.json.encode([len(before), before == after, text]).decode())
"""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    process = start_script(script, str(folder), str(run_dir), env=environment)
    output, errors = process.communicate(msgspec.json.encode(engine).decode() + "\n", timeout=60)
    assert process.returncode == 0, errors
    engine_files, untouched, scrape = json.loads(output)
    assert engine_files == 1
    assert untouched
    assert scrape.count(f'{GAPS}{{engine="0"}} 1.0') == 1
    assert "engine_own_total 1.0" in scrape
