"""Memory as the kernel reports it to the processes of a machine, and to those of a container."""

from pathlib import Path

import pytest

from understudy.host_memory import available_memory, memory_limit, oom_kills

KIB, MIB = 2**10, 2**20
NO_LIMIT = "9223372036854771712"


def write(folder: Path, files: dict[str, str | int]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def available(folder: Path, group: str, groups: dict[str, str | int], swap: int = 0) -> int:
    """MiB, swap included, of a machine with 1000 MiB available."""
    meminfo = f"MemTotal: 4000 kB\nMemAvailable: {1000 * KIB} kB\nSwapFree: {swap * KIB} kB\nHugePages_Total: 0"
    write(folder, {"proc/meminfo": meminfo, "proc/self/cgroup": group})
    sizes = {name: value * MIB if isinstance(value, int) else value for name, value in groups.items()}
    write(folder / "cgroup", sizes)
    return available_memory(with_swap=True, proc=folder / "proc", cgroups=folder / "cgroup") // MIB


V2 = {"a/memory.max": 300, "a/memory.current": 200}
V1 = {"memory/memory.limit_in_bytes": 300, "memory/memory.usage_in_bytes": 200}
STAT = f"anon 5\nactive_file {20 * MIB}\ninactive_file {30 * MIB}\nslab_reclaimable {MIB}"
TOTAL = f"cache 9\nactive_file {9 * MIB}\ntotal_active_file {20 * MIB}\ntotal_inactive_file {30 * MIB}"


@pytest.mark.parametrize(
    ("group", "groups", "swap", "free"),
    [
        ("0::/", {}, 0, 1000),  # no group with a limit
        ("0::/", {}, 50, 1050),  # swap is added
        ("0::/a", {"a/memory.max": "max", "a/memory.current": 200}, 0, 1000),
        ("0::/a", V2, 0, 100),
        ("0::/a/b/c", V2, 0, 100),  # a limit of a group above
        ("0::/", {"memory.max": 300, "memory.current": 200}, 0, 100),  # a container's group is its root
        ("0::/a", {**V2, "a/memory.stat": STAT}, 0, 151),  # cached files are dropped
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
        ("3:cpuset:/a", V2, 0, 1000),  # a group of other resources
        ("0::/a", {"a/memory.max": 100, "a/memory.current": 200}, 0, 0),
    ],
)
def test_the_minimum_over_machine_and_groups_is_available(
    tmp_path: Path, group: str, groups: dict[str, str | int], swap: int, free: int
) -> None:
    assert available(tmp_path, group, groups, swap) == free


def test_swap_counts_only_where_it_is_asked_for(tmp_path: Path) -> None:
    with_swap = available(tmp_path, "0::/a", V2, swap=70)
    without = available_memory(proc=tmp_path / "proc", cgroups=tmp_path / "cgroup") // MIB
    assert (with_swap, without) == (170, 100)


def test_a_machine_without_control_groups_has_its_own_memory(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": f"MemAvailable: {9 * KIB} kB"})
    assert available_memory(proc=tmp_path / "proc", cgroups=tmp_path / "cgroup") == 9 * MIB


def test_this_machine_has_some_and_no_more_than_there_is() -> None:
    assert 0 < available_memory() <= 2**50


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"memory.max": "max"}, None),
        ({"memory.max": 512 * MIB}, 512 * MIB),
        ({"memory/memory.limit_in_bytes": NO_LIMIT}, None),
        ({"memory/memory.limit_in_bytes": 512 * MIB}, 512 * MIB),
    ],
)
def test_the_limit_of_a_container(tmp_path: Path, files: dict[str, str | int], limit: int | None) -> None:
    write(tmp_path, files)
    assert memory_limit(tmp_path) == limit


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, 0),
        ({"memory.events": "oom 3\noom_kill 0\noom_group_kill 1"}, 0),
        ({"memory.events": "oom 3\noom_kill 2\noom_group_kill 1"}, 2),
        ({"memory/memory.oom_control": "oom_kill_disable 1\nunder_oom 1\noom_kill 4"}, 4),
    ],
)
def test_the_oom_kills_of_a_container(tmp_path: Path, files: dict[str, str | int], kills: int) -> None:
    write(tmp_path, files)
    assert oom_kills(tmp_path) == kills
