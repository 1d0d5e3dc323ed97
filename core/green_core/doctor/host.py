"""Facts of the machine, from ``/sys`` and ``/proc``. What cannot be read is unknown.

Formats: kernel documentation, admin-guide: cputopology, pm/cpufreq, cgroup-v1 and cgroup-v2.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from green_core.doctor.facts import HostFacts, NodeFacts

# Flags that decide how fast a number format is computed; x86 and arm64 names.
_FLAGS = frozenset(
    {
        *("avx", "avx2", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni"),
        *("amx_tile", "amx_bf16", "amx_fp16", "amx_int8"),
        *("asimd", "asimdhp", "sve", "sve2", "bf16", "svebf16", "i8mm"),
    }
)
_VIRTUAL_MAKERS = (
    *("qemu", "kvm", "bochs", "vmware", "xen", "innotek", "virtualbox", "parallels", "bhyve"),
    *("virtual machine", "hvm domu", "cloud hypervisor", "openstack"),
    *("amazon ec2", "google compute engine", "alibaba cloud ecs"),
)
_CONTAINER_GROUPS = ("docker", "kubepods", "containerd", "libpod", "lxc", "crio")


def host_facts(root: Path = Path("/")) -> HostFacts:
    """Read the machine below ``root``. Never raises: a missing file leaves its fact unknown."""
    cpu_folder = root / "sys/devices/system/cpu"
    online = cpu_list(_read(cpu_folder / "online"))
    flags = _cpu_flags(root)
    return HostFacts(
        cpus=len(online) or os.cpu_count() or 1,
        nodes=_nodes(root),
        cpu_flags=tuple(sorted(_FLAGS & flags)),
        governors=_per_cpu(cpu_folder, "scaling_governor"),
        drivers=_per_cpu(cpu_folder, "scaling_driver"),
        is_virtual=_is_virtual(root, flags),
        in_container=_in_container(root),
        cpu_quota=_cpu_quota(root),
    )


def cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's list format: ``0-3,8`` is 0, 1, 2, 3 and 8. What is not one is empty."""
    found: list[int] = []
    try:
        for part in text.strip().split(","):
            if part:
                first, _, last = part.partition("-")
                found.extend(range(int(first), int(last or first) + 1))
    except ValueError:
        return ()
    return tuple(found)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _nodes(root: Path) -> tuple[NodeFacts, ...]:
    """NUMA nodes that have CPUs (memory-only nodes bind nobody)."""
    nodes = (
        NodeFacts(int(path.name.removeprefix("node")), cpu_list(_read(path / "cpulist")))
        for path in (root / "sys/devices/system/node").glob("node[0-9]*")
    )
    return tuple(sorted((n for n in nodes if n.cpus), key=lambda n: n.node))


def _per_cpu(folder: Path, name: str) -> dict[str, int]:
    values = (_read(path) for path in folder.glob(f"cpu[0-9]*/cpufreq/{name}"))
    return dict(sorted(Counter(value for value in values if value).items()))


def _cpu_flags(root: Path) -> frozenset[str]:
    for line in _read(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()


def _is_virtual(root: Path, flags: frozenset[str]) -> bool | None:
    product = _read(root / "sys/class/dmi/id/product_name").lower()
    if product.endswith(".metal"):  # EC2's bare metal bears the maker's name of its machines
        return False
    maker = f"{_read(root / 'sys/class/dmi/id/sys_vendor').lower()} {product}"
    if "hypervisor" in flags or any(name in maker for name in _VIRTUAL_MAKERS):
        return True
    if _read(root / "sys/hypervisor/type"):
        return True
    # Hypervisors set the x86 flag (CPUID leaf 1, ECX bit 31); arm64 has nothing like it.
    return False if "fpu" in flags else None


def _in_container(root: Path) -> bool | None:
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return True
    groups = [line.rpartition(":")[2] for line in _read(root / "proc/self/cgroup").splitlines()]
    if any(name in group for group in groups for name in _CONTAINER_GROUPS):
        return True
    # A cgroup namespace shows "/" inside, as does the root group outside.
    return False if any(group != "/" for group in groups) else None


def _cpu_quota(root: Path) -> float | None:
    """The least of the limits on the way to the root of the hierarchy, in CPUs."""
    return min(_quotas(root), default=None)


def _quotas(root: Path) -> Iterator[float]:
    top = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, group = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            base = top
        elif "cpu" in controllers.split(","):
            base = top / "cpu"
        else:
            continue
        folder = base / group.lstrip("/")
        for place in (folder, *folder.parents):
            if (quota := _quota(place)) is not None:
                yield quota
            if place == base:
                break


def _quota(folder: Path) -> float | None:
    if text := _read(folder / "cpu.max"):
        parts = text.split()
    else:
        parts = [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
    try:
        quota_us, period_us = (float(part) for part in parts)
    except ValueError:  # "max", or no such file
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None
