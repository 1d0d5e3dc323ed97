"""Facts of a machine and of a process, from a tree of files."""

import os
import time

import pytest

from green_core.doctor.facts import HostFacts, NodeFacts
from green_core.doctor.host import cpu_list, host_facts
from green_core.doctor.process import process_facts
from green_core.procfs import parents
from green_core.testing.host import FakeHost

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path / "root")


def test_a_machine_is_read_with_nodes_frequency_and_features(host):
    host.cpus(4, flags=("fpu", "sse2", "avx2", "avx512_bf16", "amx_bf16"))
    host.node(0, "0-1")
    host.node(1, "2,3")
    host.node(2, "")
    for cpu in range(4):
        governor = "performance" if cpu else "powersave"
        host.frequency(cpu, governor=governor, driver="acpi-cpufreq")
    host.machine(maker="Dell Inc.", product="PowerEdge R650")
    host.write("/proc/self/cgroup", "0::/user.slice/session-1.scope\n")
    assert host_facts(host.root) == HostFacts(
        cpus=4,
        nodes=(NodeFacts(0, (0, 1)), NodeFacts(1, (2, 3))),
        cpu_flags=("amx_bf16", "avx2", "avx512_bf16"),
        governors={"performance": 3, "powersave": 1},
        drivers={"acpi-cpufreq": 4},
        is_virtual=False,
        in_container=False,
        cpu_quota=None,
    )


def test_what_cannot_be_read_is_unknown_and_never_taken_for_well(host):
    facts = host_facts(host.root)
    assert facts.is_virtual is facts.in_container is facts.cpu_quota is None
    assert (facts.nodes, facts.cpu_flags, facts.governors, facts.drivers) == ((), (), {}, {})
    assert facts.cpus >= 1


def test_the_real_machine_can_be_read():
    assert host_facts().cpus >= 1


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8\n", (0, 1, 2, 3, 8)), ("5", (5,)), ("", ()), ("0-x", ()), ("none", ())],
)
def test_the_kernels_lists_are_read(text, cpus):
    assert cpu_list(text) == cpus


def test_features_of_arm64_are_found_by_their_own_name(host):
    host.cpus(1, flags=("fp", "asimd", "bf16", "i8mm"), name="Features")
    facts = host_facts(host.root)
    assert facts.cpu_flags == ("asimd", "bf16", "i8mm")
    assert facts.is_virtual is None


@pytest.mark.parametrize(
    ("flags", "maker", "product", "is_virtual"),
    [
        (("fpu", "hypervisor"), "", "", True),
        (("fpu",), "QEMU", "Standard PC", True),
        (("fpu",), "Amazon EC2", "m7i.large", True),
        (("fpu",), "Amazon EC2", "m7i.metal", False),
        (("fpu",), "Microsoft Corporation", "Virtual Machine", True),
        (("fpu",), "Supermicro", "SYS-120C", False),
    ],
)
def test_a_virtual_machine_is_told_by_its_cpu_or_its_maker(host, flags, maker, product, is_virtual):
    host.cpus(1, flags=flags)
    host.machine(maker=maker, product=product)
    assert host_facts(host.root).is_virtual is is_virtual


@pytest.mark.parametrize(
    ("file", "content", "in_container"),
    [
        ("/.dockerenv", "", True),
        ("/run/.containerenv", "", True),
        ("/proc/self/cgroup", "0::/kubepods.slice/pod1\n", True),
        ("/proc/self/cgroup", "9:cpu:/docker/0a\n", True),
        ("/proc/self/cgroup", "0::/\n", None),
        ("/proc/self/cgroup", "0::/system.slice/vllm.service\n", False),
    ],
)
def test_a_container_is_told_by_its_marks(host, file, content, in_container):
    host.write(file, content)
    assert host_facts(host.root).in_container is in_container


def test_the_tightest_quota_on_the_way_up_counts(host):
    host.write("/proc/self/cgroup", "0::/a/b\n")
    host.write("/sys/fs/cgroup/a/cpu.max", "250000 100000\n")
    host.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    assert host_facts(host.root).cpu_quota == 2.5
    host.write("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n")
    assert host_facts(host.root).cpu_quota == 2.5


def test_a_quota_of_the_first_cgroup_version_is_read_and_minus_one_is_none(host):
    host.write("/proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n")
    host.write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n")
    host.write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n")
    assert host_facts(host.root).cpu_quota is None
    host.write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "400000\n")
    assert host_facts(host.root).cpu_quota == 4.0


# --- processes ------------------------------------------------------------------------------


def test_a_process_is_read_whatever_its_name_holds(host):
    host.process(
        42,
        name="VLLM) S 1 (x",
        user_ticks=3 * TICKS_PER_S,
        system_ticks=TICKS_PER_S,
        threads=9,
        start_ticks=7 * TICKS_PER_S,
        cpus="0-1,4",
        boot_s=1_000_000_000,
    )
    facts = process_facts("worker", 42, root=host.root)
    assert (facts.role, facts.pid, facts.threads, facts.cpus) == ("worker", 42, 9, (0, 1, 4))
    assert facts.cpu_s == 4.0
    assert facts.started_s == 1_000_000_007.0
    assert abs(facts.at_s - time.time()) < 60


def test_of_the_environment_only_what_decides_on_threads_leaves_the_process(host):
    wanted = {
        "GOMP_CPU_AFFINITY": "0 1",
        "KMP_BLOCKTIME": "0",
        "MKL_NUM_THREADS": "2",
        "OMP_NUM_THREADS": "4",
        "VLLM_CPU_OMP_THREADS_BIND": "auto",
    }
    secrets = {
        "GREEN_CARBON_TOKEN": "s3cret",
        "HF_TOKEN": "s3cret",
        "OPENAI_API_KEY": "s3cret",
        "VLLM_API_KEY": "s3cret",
        "SGLANG_API_KEY": "s3cret",
        "HOMP_X": "s3cret",
    }
    host.process(42, environment={**wanted, **secrets})
    assert process_facts("worker", 42, root=host.root).environment == wanted


def test_a_variable_of_any_length_is_cut(host):
    host.process(42, environment={"OMP_PLACES": "{0}," * 10_000})
    (value,) = process_facts("worker", 42, root=host.root).environment.values()
    assert len(value) == 400


def test_this_process_is_read_with_its_present_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    facts = process_facts("engine")
    assert facts.pid == os.getpid()
    assert facts.environment["OMP_NUM_THREADS"] == "3"
    assert facts.cpus == tuple(sorted(os.sched_getaffinity(0)))
    assert facts.cpu_s > 0
    assert facts.started_s <= facts.at_s


def test_a_process_that_has_ended_is_an_error_with_its_number(host):
    with pytest.raises(ProcessLookupError, match="/proc/42/stat"):
        process_facts("worker", 42, root=host.root)


def test_a_system_without_proc_shows_no_processes(tmp_path):
    assert parents(tmp_path / "proc") == {}
