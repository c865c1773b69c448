"""The pool of ranks itself: a rank that dies in a test fails that test, and no later one."""

import os
import signal
from collections.abc import Iterator

import pytest

import tests.ranks.pool
from tests.ranks.pool import Ranks


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    monkeypatch.setattr(tests.ranks.pool, "LEAVES", 1)
    pool = Ranks(2)
    yield pool
    pool.close()


def die() -> None:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    if os.environ["RANK"] == "1":
        os.write(2, b"a wild pointer\n")
        os.abort()


def refuse() -> None:
    raise ValueError("not today")


def process() -> int:
    return os.getpid()


def multiply(rows: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo")
    spread = distribute_tensor(torch.ones(rows, 6), init_device_mesh("cpu", (2,)), [Shard(0)])
    (spread @ spread.T).redistribute(placements=[Replicate()]).sum().full_tensor()
    dist.destroy_process_group()


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_no_thread_of_a_jobs_groups_is_left(two: Ranks) -> None:
    two.run(2, multiply, 4)
    before = two.run(2, threads)
    for rows in (6, 8):
        two.run(2, multiply, rows)
    assert two.run(2, threads) == before


def test_a_rank_that_dies_fails_its_job_alone(two: Ranks) -> None:
    with pytest.raises(AssertionError, match=r"no answer from \{1: -9\} .* of 2"):
        two.run(2, die)
    assert len(set(two.run(2, process))) == 2


def test_what_a_rank_said_and_where_it_was_when_it_crashed_is_told(two: Ranks) -> None:
    with pytest.raises(AssertionError, match=r"no answer from \{1: -6\}(?s:.*)rank 1: a wild pointer(?s:.*)in crash"):
        two.run(2, crash)


def test_the_traceback_of_what_a_rank_raised_is_told(two: Ranks) -> None:
    before = two.run(2, process)
    with pytest.raises(AssertionError, match="not today"):
        two.run(2, refuse)
    assert two.run(2, process) == before


def test_after_many_jobs_other_processes_take_their_place(two: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.ranks.pool, "JOBS", 2)
    first, second, third = (two.run(1, process) for _ in range(3))
    assert first == second != third
