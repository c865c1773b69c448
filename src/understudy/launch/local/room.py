"""Free memory and disk space of this machine, or of the container of this process."""

import os
from collections.abc import Iterator
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def free_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Bytes of memory available to processes here, including swap and reclaimable caches.

    The minimum over the machine and each control group of this process; both cgroup versions are supported.

    Args:
        proc: where procfs is mounted.
        cgroups: where control groups are mounted.
    """
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    machine = {fields[0].rstrip(":"): int(fields[1]) * 1024 for fields in lines if len(fields) > 1}
    swap = machine.get("SwapFree", 0)
    return max(0, min([machine["MemAvailable"] + swap, *_left(proc, cgroups, swap)]))


def free_disk(folder: Path) -> int:
    """Bytes that this user may still write to a folder's file system."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _left(proc: Path, cgroups: Path, swap: int) -> Iterator[int]:
    """Bytes left in each control group that limits this process."""
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        version, root = (2, cgroups) if not controllers else (1, cgroups / "memory")
        if controllers not in ("", "memory"):
            continue
        subpath = Path(name.lstrip("/"))
        for group in (root / path for path in (subpath, *subpath.parents)):  # a container sees its group as the root
            left = _of_version_2(group, swap) if version == 2 else _of_version_1(group, swap)
            if left is not None:
                yield left


def _of_version_2(group: Path, swap: int) -> int | None:
    """Bytes left in a cgroup v2; None if it has no limit."""
    limit, used = _number(group / "memory.max"), _number(group / "memory.current")
    if limit is None or used is None:
        return None
    swap_limit, swapped = _number(group / "memory.swap.max"), _number(group / "memory.swap.current")
    free_swap = swap if swap_limit is None else min(swap, swap_limit - (swapped or 0))
    return limit - used + _droppable(group, "") + free_swap


def _of_version_1(group: Path, swap: int) -> int | None:
    """Bytes left in a cgroup v1; None if it does not exist."""
    limit, used = _number(group / "memory.limit_in_bytes"), _number(group / "memory.usage_in_bytes")
    if limit is None or used is None:
        return None
    left = limit - used + swap
    with_swap, all_used = _number(group / "memory.memsw.limit_in_bytes"), _number(group / "memory.memsw.usage_in_bytes")
    if with_swap is not None and all_used is not None:
        left = min(left, with_swap - all_used)
    return left + _droppable(group, "total_")


def _droppable(group: Path, prefix: str) -> int:
    """Bytes of page cache and kernel caches that count as used but are reclaimed for processes."""
    kinds = {f"{prefix}active_file", f"{prefix}inactive_file", "slab_reclaimable"}
    try:
        lines = [line.split() for line in (group / "memory.stat").read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(size) for kind, size in lines if kind in kinds)


def _number(path: Path) -> int | None:
    """The number in a file; None if there is no file or no limit."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return None if text == "max" else int(text)
