"""Attempts of a job, one after the other."""

from dataclasses import replace
from pathlib import Path

import pytest

from understudy.errors import FAILED, Fenced
from understudy.jobs import attempts
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec


@pytest.fixture
def spec(job: JobSpec) -> JobSpec:
    return replace(job, supervised=True)


def test_a_new_attempt_takes_the_work_of_the_one_before_and_fences_it_off(spec: JobSpec) -> None:
    first = replace(spec, attempt=attempts.begin(spec, 2))
    (first.work / "checkpoints").mkdir()
    Outcome(FAILED, "killed", "killed").write(spec.outcome(0))
    second = replace(spec, attempt=attempts.begin(spec, 2))
    assert (second.work / "checkpoints").is_dir()
    assert not first.work.exists()
    assert attempts.latest(Path(spec.folder)) == second.work
    assert [outcome.message for outcome in attempts.failures(Path(spec.folder))] == ["killed"]
    assert not spec.outcome(0).exists()


def test_a_job_that_is_over_has_no_further_attempt(spec: JobSpec, tmp_path: Path) -> None:
    with pytest.raises(Fenced):
        attempts.begin(replace(spec, folder=str(tmp_path / "gone")), 2)


def test_of_all_ranks_the_one_that_made_the_others_fail_is_kept(spec: JobSpec) -> None:
    attempts.begin(spec, 2)
    Outcome(FAILED, "connection closed by peer", "lost").write(spec.outcome(0))
    Outcome(FAILED, "rank 1 ended with signal SIGKILL", "killed").write(spec.outcome(1))
    attempts.keep_failures(spec)
    assert [outcome.kind for outcome in attempts.failures(Path(spec.folder))] == ["killed"]


def test_half_a_line_does_not_hide_the_others(spec: JobSpec) -> None:
    (Path(spec.folder) / attempts.FAILURES).write_text('{"exit_code": 1, "mess')
    attempts.begin(spec, 2)
    attempts.report_hang(spec, "no rank has moved")
    attempts.report_hang(spec, "no rank has moved, says another node")
    assert [outcome.message for outcome in attempts.failures(Path(spec.folder))] == ["no rank has moved"]


def test_what_a_rank_left_in_place_of_a_file_is_neither_followed_nor_in_the_way(spec: JobSpec, tmp_path: Path) -> None:
    attempts.begin(spec, 2)
    folder = Path(spec.folder)
    (folder / "heartbeat-9.json").mkdir()
    spec.abandoned_file.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "hung").write_text("another job's")
    (folder / "attempt.9.x").symlink_to(tmp_path / "elsewhere")
    attempts.keep_failures(spec)
    assert (tmp_path / "elsewhere" / "hung").exists()


def test_a_history_of_any_size_is_read_in_part(spec: JobSpec) -> None:
    with (Path(spec.folder) / "failures.jsonl").open("wb") as stream:
        stream.truncate(2**40)
    assert attempts.failures(Path(spec.folder)) == []


def test_attempts_are_counted_as_numbers(spec: JobSpec) -> None:
    names = [attempts.begin(spec, 2) for _ in range(11)]
    assert names[-1].startswith("attempt.11.")
