"""Traps of the machine: threads, nodes, frequency, starts, and a server that spins while idle."""

import pytest

from green_core.doctor.facts import Finding, NotChecked
from green_core.doctor.traps import TRAPS
from green_core.testing.builders import engine_info
from green_core.testing.status import (
    NOW_S,
    cpu_status,
    engine_facts,
    host_facts,
    load_facts,
    process_facts,
    start_facts,
    status,
)

ALL = tuple(range(32))
NODE_0 = tuple(range(16))


def find(trap, now, earlier=None):
    return TRAPS[trap](now, earlier)


def worker(pid=101, cpus=ALL, **environment):
    """A worker that vLLM does not bind, as its readable variables say."""
    environment = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", **environment}
    return process_facts(role="VLLM::Worker", pid=pid, cpus=cpus, environment=environment)


def nameless(pid=101):
    """A worker that has overwritten what ``/proc`` shows of its variables."""
    return process_facts(role="VLLM::Worker", pid=pid, environment={})


def served_by(*processes, **changes):
    return cpu_status(processes=(process_facts(), *processes), **changes)


# --- NUMA -----------------------------------------------------------------------------------


def test_a_cpu_engine_over_two_nodes_without_binding_is_found():
    found = find("numa", served_by(worker(OMP_NUM_THREADS="32")))
    assert isinstance(found, Finding)
    assert "VLLM::Worker 101 on nodes [0, 1]" in found.evidence
    assert "VLLM_CPU_OMP_THREADS_BIND" in found.remedy
    assert found.energy_j_per_day is None
    assert "compare joules per token" in found.estimate


@pytest.mark.parametrize(
    "bound",
    [
        {"OMP_PROC_BIND": "true", "OMP_PLACES": "{0,1}"},
        {"KMP_AFFINITY": "granularity=fine,explicit,proclist=[0,1]"},
        {"GOMP_CPU_AFFINITY": "0 1"},
    ],
)
def test_a_worker_whose_threads_are_bound_is_no_trap(bound):
    assert find("numa", served_by(worker(**bound))) is None


def test_a_worker_that_may_run_on_one_node_alone_is_no_trap():
    assert find("numa", served_by(worker(cpus=NODE_0))) is None


def test_an_engine_on_a_gpu_is_not_asked_for_nodes():
    assert find("numa", status()) is None


def test_vllm_binds_its_workers_unless_it_is_told_not_to():
    """Where only the engine's process is seen, its setting decides."""
    assert find("numa", served_by()) is None
    told = process_facts(environment={"VLLM_CPU_OMP_THREADS_BIND": "nobind"})
    assert isinstance(find("numa", cpu_status(processes=(told,))), Finding)


@pytest.mark.parametrize(
    "server",
    [
        served_by(worker(), host=host_facts(nodes=())),
        served_by(worker(cpus=())),
        cpu_status(processes=()),
        status(engine=engine_facts(info=engine_info(device="unknown"))),
    ],
    ids=["no nodes shown", "no affinity", "no process", "no device"],
)
def test_nodes_are_not_judged_without_facts(server):
    assert isinstance(find("numa", server), NotChecked)


# --- OpenMP ---------------------------------------------------------------------------------


def test_more_threads_than_cpus_are_found():
    found = find("omp_threads", served_by(worker(cpus=NODE_0, OMP_NUM_THREADS="64")))
    assert "1 process(es) start 64 threads on 16 CPU(s)" in found.evidence
    assert "OMP_NUM_THREADS" in found.remedy


def test_processes_that_share_cpus_with_omp_num_threads_unset_are_found():
    found = find("omp_threads", served_by(worker(101), worker(102)))
    assert "2 process(es) start 64 threads on 32 CPU(s)" in found.evidence
    assert "unset in 2 of them" in found.evidence


def test_workers_that_vllm_itself_put_on_one_cpu_are_told_to_name_cpus():
    bound = {"VLLM_CPU_OMP_THREADS_BIND": "auto", "GOMP_CPU_AFFINITY": "0"}
    found = find("omp_threads", served_by(worker(101, (0,), **bound), worker(102, (0,), **bound)))
    assert "2 process(es) start 2 threads on 1 CPU(s)" in found.evidence
    assert "VLLM_CPU_OMP_THREADS_BIND=0-15|16-31" in found.remedy
    assert "Leave" not in found.remedy  # it was left at auto, and that is how they got there


def test_threads_beyond_the_quota_of_a_container_are_found():
    found = find("omp_threads", served_by(worker(), host=host_facts(cpu_quota=4.0)))
    assert "grants 4" in found.evidence


@pytest.mark.parametrize(
    "workers",
    [
        (worker(OMP_NUM_THREADS="32"),),
        (worker(),),
        (worker(101, OMP_NUM_THREADS="16"), worker(102, OMP_NUM_THREADS="16,1")),
        (worker(101, NODE_0), worker(102, tuple(range(16, 32)))),
    ],
    ids=["as many", "unset and alone", "shared out", "side by side"],
)
def test_threads_that_fit_their_cpus_are_no_trap(workers):
    assert find("omp_threads", served_by(*workers)) is None


def test_threads_are_not_judged_where_vllm_sets_them_for_workers_that_are_not_seen():
    assert isinstance(find("omp_threads", served_by()), NotChecked)


def test_workers_that_hide_their_variables_have_those_of_the_engine():
    told = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "64"}
    server = cpu_status(processes=(process_facts(environment=told), nameless()))
    assert "1 process(es) start 64 threads on 32 CPU(s)" in find("omp_threads", server).evidence
    assert "VLLM::Worker 101 on nodes [0, 1]" in find("numa", server).evidence


def test_workers_that_hide_what_vllm_set_for_them_are_not_judged():
    told = process_facts(environment={"OMP_NUM_THREADS": "64"})  # which vLLM replaces
    server = cpu_status(processes=(told, nameless(101), nameless(102)))
    assert isinstance(find("omp_threads", server), NotChecked)
    assert find("numa", server) is None


def test_an_engine_on_a_gpu_may_have_any_number_of_threads():
    assert find("omp_threads", status(processes=(worker(OMP_NUM_THREADS="999"),))) is None


# --- frequency ------------------------------------------------------------------------------


def clocked(governor, driver, *, busy_s=1_800.0, **changes):
    host = host_facts(governors={governor: 32}, drivers={driver: 32}, **changes)
    return status(host=host, load=load_facts(busy_s=busy_s))


def test_the_lowest_frequency_under_load_is_found():
    found = find("frequency", clocked("powersave", "acpi-cpufreq"))
    assert "lowest frequency" in found.title
    assert "powersave (32)" in found.evidence
    assert "50%" in found.evidence


def test_full_frequency_on_an_idle_server_is_found():
    found = find("frequency", clocked("performance", "intel_pstate", busy_s=36.0))
    assert "full frequency" in found.title
    assert "1%" in found.evidence


@pytest.mark.parametrize("driver", ["intel_pstate", "amd-pstate-epp"])
def test_powersave_of_a_driver_that_scales_itself_is_no_trap(driver):
    assert find("frequency", clocked("powersave", driver)) is None


@pytest.mark.parametrize(
    ("governor", "busy_s"), [("powersave", 36.0), ("performance", 1_800.0), ("schedutil", 36.0)]
)
def test_a_governor_that_fits_the_load_is_no_trap(governor, busy_s):
    assert find("frequency", clocked(governor, "acpi-cpufreq", busy_s=busy_s)) is None


def test_a_physical_machine_without_frequency_scaling_is_found():
    host = host_facts(governors={}, drivers={})
    assert "not scaled" in find("frequency", status(host=host)).title


@pytest.mark.parametrize("is_virtual", [True, None])
def test_in_a_virtual_machine_frequency_is_unknown_and_said_to_be(is_virtual):
    host = host_facts(governors={}, drivers={}, is_virtual=is_virtual)
    assert isinstance(find("frequency", status(host=host)), NotChecked)


def test_a_governor_is_not_judged_by_a_minute_of_load():
    server = clocked("performance", "acpi-cpufreq")
    short = load_facts(since_s=NOW_S - 59.0, busy_s=1.0)
    assert isinstance(find("frequency", status(host=server.host, load=short)), NotChecked)


# --- starts ---------------------------------------------------------------------------------


def started(*ago_s, **changes):
    return tuple(start_facts(each, **changes) for each in ago_s)


def test_a_model_that_is_loaded_again_and_again_is_found_with_the_loads_as_cost():
    """Three loads of 40 s, two too many, at the 100 W of the idle engine."""
    found = find("repeated_loading", status(starts=started(600.0, 7200.0, 14_400.0)))
    assert "3 starts of org/model-8b" in found.evidence
    assert "120 s to load" in found.evidence
    assert found.energy_j_per_day == pytest.approx(2 * 40.0 * 100.0)


def test_idle_power_of_two_engines_is_that_of_each():
    """180 kJ over two half-idle hours, not over one: the busy seconds of both are added up."""
    two = (process_facts(pid=1), process_facts(pid=2))
    load = load_facts(busy_s=3_600.0)
    found = find(
        "repeated_loading", status(processes=two, load=load, starts=started(1.0, 2.0, 3.0))
    )
    assert found.energy_j_per_day == pytest.approx(2 * 40.0 * 50.0)


def test_loads_of_unknown_length_have_no_figure():
    found = find("repeated_loading", status(starts=started(1.0, 2.0, 3.0, load_s=None)))
    assert found.energy_j_per_day is None


@pytest.mark.parametrize(
    "starts",
    [
        started(600.0, 7200.0),
        started(600.0, 7200.0, 90_000.0),
        (*started(600.0, 7200.0), start_facts(9.0, model="another")),
        started(600.0, 610.0, 620.0, 630.0, is_running=True),
    ],
    ids=["twice", "over two days", "two models", "replicas side by side"],
)
def test_a_few_starts_and_servers_side_by_side_are_no_trap(starts):
    assert find("repeated_loading", status(starts=starts)) is None


# --- idle spin ------------------------------------------------------------------------------


def looks(cores, *, apart_s=5.0, then=None, now=None, **process):
    """Two looks at an idle server whose engine used ``cores`` of CPU between them."""
    before = process_facts(at_s=NOW_S - apart_s, cpu_s=1_000.0)
    after = process_facts(**{"at_s": NOW_S, "cpu_s": 1_000.0 + cores * apart_s, **process})
    return (
        status(processes=(after,), load=load_facts(**(now or {}))),
        status(processes=(before,), load=load_facts(**(then or {}))),
    )


def test_an_idle_server_that_keeps_a_core_busy_is_found():
    """FIELD P15. One core over the half of the day in which the engine is idle."""
    found = find("idle_spin", *looks(1.0))
    assert "engine 100: 100% of a core" in found.evidence
    assert 86_400 * 0.5 < found.energy_j_per_day < 86_400 * 0.5 * 20
    assert "W a busy core" in found.estimate


def test_an_idle_server_that_sleeps_is_no_trap():
    assert find("idle_spin", *looks(0.09)) is None


def test_held_requests_do_not_make_an_engine_busy():
    assert isinstance(find("idle_spin", *looks(1.0, now={"held": 5}, then={"held": 5})), Finding)


@pytest.mark.parametrize(
    ("now", "then"),
    [({"steps": 50_001}, {}), ({"running": 1}, {}), ({}, {"waiting": 1})],
    ids=["a step between", "running", "was waiting"],
)
def test_a_server_at_work_is_not_judged(now, then):
    assert isinstance(find("idle_spin", *looks(1.0, now=now, then=then)), NotChecked)


@pytest.mark.parametrize(
    ("apart_s", "process"), [(1.9, {}), (5.0, {"pid": 7}), (5.0, {"started_s": 1.0})]
)
def test_looks_too_close_or_at_another_process_are_not_judged(apart_s, process):
    """A pid may be used again: the start time tells the processes apart."""
    assert isinstance(find("idle_spin", *looks(1.0, apart_s=apart_s, **process)), NotChecked)


def test_an_engine_that_was_at_work_a_moment_ago_is_not_judged():
    """It looks for more work for a while, and may spin meanwhile."""
    before = {"until_s": NOW_S - 5.0, "last_step_s": NOW_S - 6.0}
    assert isinstance(find("idle_spin", *looks(1.0, then=before)), NotChecked)
    before["last_step_s"] = NOW_S - 8.0
    assert isinstance(find("idle_spin", *looks(1.0, then=before)), Finding)


def test_one_look_cannot_see_a_spin():
    assert isinstance(find("idle_spin", looks(1.0)[0]), NotChecked)
