"""Memory of this machine, or of this process's container, as the kernel reports it (proc(5), cgroups(7)).

Control groups of versions 1 and 2 are supported. The memory of a container is that of its group, which it sees as the
root.
"""

import re
from collections.abc import Iterator
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
NO_LIMIT = 2**60
"""Bytes; version 1 reports a limit above it, the largest number of pages, where there is none."""


def available_memory(*, with_swap: bool = False, proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Bytes that processes here can still allocate, including reclaimable caches.

    The minimum over the machine and each control group of this process.

    Args:
        with_swap: add free swap. Training in swap is too slow to plan for it, but it does not fail.
        proc: where procfs is mounted.
        cgroups: where control groups are mounted.
    """
    lines = (line.split() for line in _lines(proc / "meminfo"))
    machine = {fields[0].rstrip(":"): int(fields[1]) * 1024 for fields in lines if len(fields) > 1}
    swap = machine.get("SwapFree", 0) if with_swap else 0
    return max(0, min([machine["MemAvailable"] + swap, *_left(proc, cgroups, swap)]))


def memory_limit(cgroups: Path = CGROUPS) -> int | None:
    """Bytes that this container may use; None outside of containers, or without a limit."""
    limits = (_number(cgroups / name) for name in ("memory.max", "memory/memory.limit_in_bytes"))
    return next((limit for limit in limits if limit is not None and limit < NO_LIMIT), None)


def oom_kills(cgroups: Path = CGROUPS) -> int:
    """Number of this container's processes that the kernel killed for memory; 0 outside of containers."""
    for name in ("memory.events", "memory/memory.oom_control"):
        for line in _lines(cgroups / name):
            if count := re.fullmatch(r"oom_kill (\d+)", line):
                return int(count[1])
    return 0


def _left(proc: Path, cgroups: Path, swap: int) -> Iterator[int]:
    """Bytes left in each control group that limits this process."""
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, name = line.split(":", 2)
        version, root = (2, cgroups) if not controllers else (1, cgroups / "memory")
        if controllers not in ("", "memory"):
            continue
        subpath = Path(name.lstrip("/"))
        for group in (root / path for path in (subpath, *subpath.parents)):  # a container sees its group as the root
            available = _of_version_2(group, swap) if version == 2 else _of_version_1(group, swap)
            if available is not None:
                yield available


def _of_version_2(group: Path, swap: int) -> int | None:
    """Bytes left in a cgroup v2; None if it has no limit."""
    limit, used = _number(group / "memory.max"), _number(group / "memory.current")
    if limit is None or used is None:
        return None
    swap_limit, swapped = _number(group / "memory.swap.max"), _number(group / "memory.swap.current")
    free_swap = swap if swap_limit is None else min(swap, swap_limit - (swapped or 0))
    return limit - used + _reclaimable(group, "") + free_swap


def _of_version_1(group: Path, swap: int) -> int | None:
    """Bytes left in a cgroup v1; None if it does not exist."""
    limit, used = _number(group / "memory.limit_in_bytes"), _number(group / "memory.usage_in_bytes")
    if limit is None or used is None:
        return None
    left = limit - used + swap
    with_swap, all_used = _number(group / "memory.memsw.limit_in_bytes"), _number(group / "memory.memsw.usage_in_bytes")
    if with_swap is not None and all_used is not None:
        left = min(left, with_swap - all_used)
    return left + _reclaimable(group, "total_")


def _reclaimable(group: Path, prefix: str) -> int:
    """Bytes of page cache and kernel caches that count as used but are reclaimed for processes."""
    kinds = {f"{prefix}active_file", f"{prefix}inactive_file", "slab_reclaimable"}
    return sum(int(size) for kind, size in map(str.split, _lines(group / "memory.stat")) if kind in kinds)


def _number(path: Path) -> int | None:
    """The number in a file; None if there is no file or no limit."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0] != "max" else None


def _lines(path: Path) -> list[str]:
    """A file's lines; none if it does not exist or may not be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
