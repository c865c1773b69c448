"""The pool of ranks itself: what dies in a test is that test's failure, and no later one's."""

import os
import signal
from collections.abc import Iterator

import pytest

import tests.ranks
from tests.ranks import Ranks


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    monkeypatch.setattr(tests.ranks, "LEAVES", 1)
    pool = Ranks(2)
    yield pool
    pool.close()


def die() -> None:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise ValueError("not today")


def process() -> int:
    return os.getpid()


def test_a_rank_that_dies_fails_its_job_alone(two: Ranks) -> None:
    with pytest.raises(AssertionError, match=r"no answer from \{1: -9\} .* of 2"):
        two.run(2, die)
    assert len(set(two.run(2, process))) == 2


def test_the_traceback_of_what_a_rank_raised_is_told(two: Ranks) -> None:
    before = two.run(2, process)
    with pytest.raises(AssertionError, match="not today"):
        two.run(2, refuse)
    assert two.run(2, process) == before


def test_after_many_jobs_other_processes_take_their_place(two: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.ranks, "JOBS", 2)
    first, second, third = (two.run(1, process) for _ in range(3))
    assert first == second != third
