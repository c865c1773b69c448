"""What is free, as the kernel tells it to a machine's processes, and to those of a container."""

import os
from pathlib import Path

import pytest

from understudy.launch.local.room import free_disk, free_memory

KIB, MIB = 2**10, 2**20
NO_LIMIT = "9223372036854771712"


def written(folder: Path, files: dict[str, str | int]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def left(folder: Path, group: str, groups: dict[str, str | int], swap: int = 0) -> int:
    """Of a machine with 1000 MiB available, in units of MiB."""
    meminfo = f"MemTotal: 4000 kB\nMemAvailable: {1000 * KIB} kB\nSwapFree: {swap * KIB} kB\nHugePages_Total: 0"
    written(folder, {"proc/meminfo": meminfo, "proc/self/cgroup": group})
    sizes = {name: value * MIB if isinstance(value, int) else value for name, value in groups.items()}
    written(folder / "cgroup", sizes)
    return free_memory(folder / "proc", folder / "cgroup") // MIB


V2 = {"a/memory.max": 300, "a/memory.current": 200}
V1 = {"memory/memory.limit_in_bytes": 300, "memory/memory.usage_in_bytes": 200}
STAT = f"anon 5\nactive_file {20 * MIB}\ninactive_file {30 * MIB}\nslab_reclaimable {MIB}"
TOTAL = f"cache 9\nactive_file {9 * MIB}\ntotal_active_file {20 * MIB}\ntotal_inactive_file {30 * MIB}"


@pytest.mark.parametrize(
    ("group", "groups", "swap", "free"),
    [
        ("0::/", {}, 0, 1000),  # no group with a limit
        ("0::/", {}, 50, 1050),  # swap is memory, too
        ("0::/a", {"a/memory.max": "max", "a/memory.current": 200}, 0, 1000),
        ("0::/a", V2, 0, 100),
        ("0::/a/b/c", V2, 0, 100),  # the limit is of a group above
        ("0::/", {"memory.max": 300, "memory.current": 200}, 0, 100),  # a container's own is its root
        ("0::/a", {**V2, "a/memory.stat": STAT}, 0, 151),  # cached files make room
        ("0::/a", {**V2, "a/memory.swap.max": "max"}, 70, 170),
        ("0::/a", {**V2, "a/memory.swap.max": 50, "a/memory.swap.current": 20}, 70, 130),
        ("0::/a", {**V2, "a/memory.swap.max": 0, "a/memory.swap.current": 0}, 70, 100),
        ("0::/a", {"a/memory.max": 5000, "a/memory.current": 0}, 0, 1000),  # the machine has less
        ("4:memory:/pod/x\n0::/", V1, 0, 100),
        ("4:memory:/x", {"memory/memory.limit_in_bytes": NO_LIMIT, "memory/memory.usage_in_bytes": 5}, 0, 1000),
        ("4:memory:/", {**V1, "memory/memory.stat": TOTAL}, 0, 150),
        ("4:memory:/", V1, 70, 170),
        (
            "4:memory:/",
            {**V1, "memory/memory.memsw.limit_in_bytes": 310, "memory/memory.memsw.usage_in_bytes": 200},
            *(70, 110),
        ),
        ("3:cpuset:/a", V2, 0, 1000),  # says nothing of memory
        ("0::/a", {"a/memory.max": 100, "a/memory.current": 200}, 0, 0),
    ],
)
def test_the_least_of_machine_and_groups_is_free(
    tmp_path: Path, group: str, groups: dict[str, str | int], swap: int, free: int
) -> None:
    assert left(tmp_path, group, groups, swap) == free


def test_this_machine_has_some_and_no_more_than_there_is() -> None:
    assert 0 < free_memory() <= 2**50


def test_a_disk_has_what_its_users_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = list(os.statvfs(tmp_path))
    values[1], values[3], values[4] = 512, 100, 7  # size of a block, blocks that are free, and for users
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(values))
    assert free_disk(tmp_path) == 7 * 512
