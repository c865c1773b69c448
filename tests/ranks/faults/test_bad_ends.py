"""Trainings that end badly: one message that names what happened and what to do, and nothing complete is lost."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.faults import stage as stages
from tests.ranks.faults.stage import Stage, wait

MEGABYTE = 2**20
BRIEFLY = {"steps": 30}
"""Long enough for a fault after the second checkpoint, and another one when the training went on."""
EITHER_RANK = pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.full), 1])

pytestmark = [pytest.mark.timeout(900)]


def message(error: str) -> str:
    """The one line that a user sees."""
    lines = [line.partition(": ")[2] for line in error.splitlines() if " ERROR " in line]
    assert len(lines) == 1, error
    return lines[0]


def fails(stage: Stage, recipe: dict[str, Any], last: str = "teacher") -> str:
    code, _, error = stages.ended(stage.steps(recipe, last))
    assert code == 1, error
    assert not stage.left_behind()
    return message(error)


def succeeds(stage: Stage, recipe: dict[str, Any]) -> None:
    code, _, error = stages.ended(stage.steps(recipe))
    assert code == 0, error


def test_a_loss_that_is_no_number_names_step_rank_and_checkpoint(stage: Stage, tmp_path: Path) -> None:
    once = stages.recipe("ddp", "nan", BRIEFLY, at=25, rank=1, sign=str(tmp_path / "sign"))
    error = fails(stage, once)
    assert "not a number any more at step 25, on rank 1; the last good checkpoint is step 20" in error
    assert stage.checkpoints() == [10, 20]
    succeeds(stage, once)


@pytest.mark.full
def test_with_a_guard_its_step_is_skipped_and_the_log_says_so(stage: Stage, tmp_path: Path) -> None:
    guarded = stages.recipe("ddp", "nan", {**BRIEFLY, "guard": {}}, at=25, rank=1, sign=str(tmp_path / "sign"))
    code, _, error = stages.ended(stage.steps(guarded))
    assert code == 0, error
    logs = [path.read_text() for path in stage.store.glob("runs/*/logs/teacher/**/stderr.log")]
    assert [text.count("step 25 is skipped: its loss is nan") for text in sorted(logs, key=len)] == [0, 1]


@EITHER_RANK
def test_a_killed_rank_is_named_and_memory_as_the_reason(stage: Stage, tmp_path: Path, rank: int) -> None:
    error = fails(stage, stages.recipe("ddp", "killed", at=19, rank=rank, sign=str(tmp_path / "sign")))
    assert f"teacher: rank {rank} ended with signal SIGKILL" in error
    assert "memory" in error
    assert stage.checkpoints() == [10]


@EITHER_RANK
def test_the_rank_that_raised_is_quoted_and_not_those_that_fail_of_its_silence(
    stage: Stage, tmp_path: Path, rank: int
) -> None:
    error = fails(stage, stages.recipe("ddp", "confused", at=19, rank=rank, sign=str(tmp_path / "sign")))
    assert f"teacher: rank {rank}: ValueError: lost the thread; the traceback is in " in error


def test_a_factory_that_raises_is_quoted(stage: Stage) -> None:
    error = fails(stage, stages.recipe("single", "raises"))
    assert "teacher: rank 0: RuntimeError: no weights for 10 labels, not today; the traceback is in " in error


# A disk that fills up


@pytest.fixture
def small(stage: Stage, tmp_path: Path) -> Iterator[Stage]:
    """The stage on a disk of 64 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"this user may not mount a small disk: {mount.stderr.strip()}")
    try:
        shutil.copytree(stage.home, disk / "home")
        moved = Stage(disk / "home")
        yield moved
        moved.clear()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(stage: Stage, but: int) -> Path:
    """Write to the stage's disk until only so many bytes are left on it."""
    path = stage.home.with_name("filler")
    with path.open("wb") as stream:
        stat = os.statvfs(stage.home)
        stream.write(bytes(stat.f_bavail * stat.f_frsize - but))
    return path


LARGE = 512  # a width that makes checkpoints of 10 MB and models of 3 MB
FULL = "the disk is full. What was complete is kept; make room (understudy store gc shows what can go) and run again."


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["single", "fsdp"])
def test_a_disk_full_at_a_checkpoint_keeps_the_ones_before(small: Stage, strategy: str) -> None:
    recipe = stages.recipe(strategy, width=LARGE, train=BRIEFLY)
    launcher = small.steps(recipe)
    assert wait(lambda: small.checkpoints() or launcher.poll() is not None)
    filler = fill(small, but=4 * MEGABYTE)
    code, _, error = stages.ended(launcher)
    assert code == 1, error
    assert FULL in message(error)
    assert FULL in small.failures("teacher")[0]
    assert not small.left_behind()
    before_kill = small.checkpoints()
    assert before_kill
    assert before_kill[-1] < BRIEFLY["steps"]
    filler.unlink()
    now = time.time()
    restarted = small.steps(recipe)
    assert small.first_report(restarted, now) == before_kill[-1] + 1
    code, _, error = stages.ended(restarted)
    assert code == 0, error


def test_a_disk_full_at_the_model_keeps_the_last_checkpoint(small: Stage) -> None:
    recipe = stages.recipe(width=LARGE, train={"steps": 5, "checkpoint_every": 100})
    filler = fill(small, but=12 * MEGABYTE)
    assert FULL in fails(small, recipe)
    assert FULL in small.failures("teacher")[0]
    assert small.checkpoints() == [5]
    assert small.remembered("teacher") == []
    filler.unlink()
    now = time.time()
    succeeds(small, recipe)
    assert small.reported(now) == []


def test_a_disk_full_at_the_first_object_leaves_none_half_done(small: Stage) -> None:
    shutil.rmtree(small.store)
    filler = fill(small, but=MEGABYTE // 16)
    assert FULL in fails(small, stages.recipe(), "prepare")
    assert list(small.store.glob("objects/*/*")) == []
    filler.unlink()
    code, _, error = stages.ended(small.steps(stages.recipe(), "prepare"))
    assert code == 0, error


# A machine that was suspended


@pytest.mark.full
def test_a_launcher_that_was_frozen_past_its_lease_writes_nothing_more(
    stage: Stage, undisturbed: Callable[[str], str]
) -> None:
    frozen = stage.steps(stages.recipe("fsdp"), lease_seconds=2.0)
    assert wait(lambda: stage.checkpoints() or frozen.poll() is not None)
    family = stage.family(frozen.pid)
    for process in family:
        os.kill(process.pid, signal.SIGSTOP)
    lost, now = stage.job(), time.time()
    assert lost is not None
    time.sleep(2.5)
    second = stage.steps(stages.recipe("fsdp"), lease_seconds=2.0)
    assert stage.first_report(second, now) > 10
    ranks = {process for process in family if process.rank is not None}
    for process in ranks:
        os.kill(process.pid, signal.SIGCONT)
    assert wait(lambda: not ranks & set(stage.processes()), 20)  # while their launcher sleeps
    for process in set(family) - ranks:
        os.kill(process.pid, signal.SIGCONT)
    code, out, error = stages.ended(frozen)
    assert code == 1, out
    assert "another run has taken this step over" in message(error)
    assert not lost.exists()
    code, out, error = stages.ended(second)
    assert code == 0, error
    assert stages.digest(out) == undisturbed("fsdp")
    assert not stage.left_behind()
