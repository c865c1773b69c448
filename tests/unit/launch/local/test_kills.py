"""The message about a killed process, from the kernel's count before and after."""

from pathlib import Path

import pytest

from understudy.launch.local import kills
from understudy.launch.local.kills import kill_explanation, oom_kill_count


@pytest.fixture
def vmstat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "vmstat"
    monkeypatch.setattr(kills, "VMSTAT", path)
    return path


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (
            3,
            "pgfault 9\noom_kill 4\n",
            "The kernel's OOM killer ended 1 on this machine meanwhile, probably this one: a smaller batch",
        ),
        (3, "oom_kill 3\npgfault 9\n", "The kernel's OOM killer ended no process meanwhile: a user did"),
        (3, "pgfault 9\n", "The kernel ends processes in this way when memory runs out"),
        (None, "oom_kill 3\n", "The kernel ends processes in this way when memory runs out"),
    ],
)
def test_memory_is_blamed_where_the_kernel_counted_a_kill(
    vmstat: Path, before: int | None, now: str, expected: str
) -> None:
    vmstat.write_text(now)
    assert kill_explanation(before).startswith(expected)
    assert "strategy fsdp needs less" in kill_explanation(before)


def test_a_system_that_does_not_count_is_none(vmstat: Path) -> None:
    assert oom_kill_count() is None


def test_this_kernels_count_is_read() -> None:
    count = oom_kill_count()
    assert count is None or count >= 0
