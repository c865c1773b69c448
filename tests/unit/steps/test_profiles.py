"""The profiles of a run's trainings, and its notes on missing ones."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.jobs.specs import job_spec
from tests.unit.train.profiles import rank_profile
from understudy.errors import UnderstudyError
from understudy.jobs.specification import JobSpec
from understudy.recipe import Recipe
from understudy.steps import steps_of, summary_of
from understudy.steps.execution import execute
from understudy.steps.profiles import keep_profile, profiles_of, together, unprofiled
from understudy.steps.step import Work
from understudy.store import Run, StepState, Store
from understudy.store.files import write_json


@pytest.fixture
def job(run: Run) -> JobSpec:
    """A finished training of two ranks."""
    run.profiles.mkdir()
    spec = job_spec(run.folder, resources={"processes": 2}, logs=str(run.folder / "logs"))
    spec.rank_logs.mkdir(parents=True)
    return spec


def work_of(run: Run) -> Work:
    return cast(Work, SimpleNamespace(run=run, step="teacher"))


def test_all_ranks_are_taken_together(run: Run, job: JobSpec) -> None:
    busy = {**rank_profile()["kinds"], "backward": 0.08, "communication": 0.001}
    waiting = {**rank_profile()["kinds"], "communication": 0.105}
    write_json(job.profile_of(0), rank_profile(0, kinds=waiting, recorded_seconds=0.2))
    write_json(job.profile_of(1), rank_profile(1, kinds=busy, recorded_seconds=0.126, seconds=0.12))
    keep_profile(work_of(run), job)
    profile = profiles_of(run)["teacher"]
    assert (profile["world_size"], profile["slowest"], profile["first_step"], profile["steps"]) == (2, 1, 9, 5)
    assert profile["seconds"] == pytest.approx(0.1)
    assert profile["targets_per_second"] == pytest.approx(6400)
    assert profile["flop"] == 8e9
    assert profile["kinds"]["backward"] == pytest.approx(0.065)
    assert profile["slowest_kinds"] == busy
    assert (profile["mfu"], profile["no_mfu"]) == (None, "the peak speed of this CPU is not known")
    assert run.notes == []


def test_the_utilization_is_that_of_the_data_sheet() -> None:
    """Two H100s in 80 ms: 2 x 989e12 x 0.08 FLOP in bf16."""
    gpu: dict[str, Any] = {"device": "NVIDIA H100 80GB HBM3", "flop": 989e12 * 0.08 * 0.4}
    profile = together([rank_profile(rank, precision="bf16", **gpu) for rank in (0, 1)])
    assert profile["mfu"] == pytest.approx(0.4)
    assert profile["no_mfu"] == ""


@pytest.mark.parametrize(
    ("device", "precision", "why"),
    [
        ("A Card", "bf16", "A Card is not in the table"),
        ("NVIDIA A100-SXM4-80GB", "fp8", "NVIDIA A100-SXM4-80GB in fp8 is not"),
    ],
)
def test_where_a_speed_is_not_known_there_is_no_utilization(device: str, precision: str, why: str) -> None:
    profile = together([rank_profile(device=device, precision=precision)])
    assert profile["mfu"] is None
    assert why in profile["no_mfu"]


@pytest.mark.parametrize(
    ("profiles", "reason"),
    [
        ([], "took fewer than three of its steps"),
        ([rank_profile(0)], "only 1 of 2 ranks"),
        ([rank_profile(0), rank_profile(1, world_size=4)], "only 1 of 2 ranks"),
        ([rank_profile(0), rank_profile(1, seconds="long")], "only 1 of 2 ranks"),
        ([rank_profile(0), rank_profile(1, flop=-1.0)], "only 1 of 2 ranks"),
        ([rank_profile(0), rank_profile(1, kinds={"data": 0.1})], "only 1 of 2 ranks"),
        ([rank_profile(0), rank_profile(1, device="x" * 1000)], "only 1 of 2 ranks"),
    ],
)
def test_what_is_no_profile_of_all_ranks_is_not_kept(run: Run, job: JobSpec, profiles: list[Any], reason: str) -> None:
    for rank, profile in enumerate(profiles):
        write_json(job.profile_of(rank), profile)
    keep_profile(work_of(run), job)
    assert profiles_of(run) == {}
    (note,) = run.notes
    assert reason in note


def test_a_link_in_the_place_of_a_profile_is_refused(run: Run, job: JobSpec, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    job.profile_of(0).symlink_to(tmp_path / "secret")
    with pytest.raises(UnderstudyError, match="is not a regular file"):
        keep_profile(work_of(run), job)


def test_a_training_that_is_found_is_not_done_again_to_be_profiled(store: Store, digits: Recipe, examples: str) -> None:
    def teach(work: Work) -> None:
        (work.staged / "model").write_text("learned")

    step = replace(steps_of(digits)["teacher"], work=teach)
    first, second = (store.create_run("digits", digits.model_dump(mode="json", by_alias=True), "") for _ in range(2))
    second.profiles.mkdir()
    results = [execute(step, store, run, {"examples": examples}, {}) for run in (first, second)]
    assert results[0].digest == results[1].digest
    assert [state.state for run in (first, second) if (state := run.state("teacher"))] == ["done", "reused"]
    assert summary_of(store, first).notes == []
    (note,) = summary_of(store, second).notes
    assert note.startswith("teacher: no profile: an earlier run has trained it; another seed")


def test_a_teacher_without_a_training_has_no_profile(store: Store, digits: Recipe) -> None:
    values = digits.model_dump(mode="json", by_alias=True)
    values["teacher"] = {"model": {"pretrained": "folder"}}
    run = store.create_run("digits", values, "")
    run.record(StepState("teacher", "reused"))
    assert list(unprofiled(run)) == []
    run.profiles.mkdir()
    assert list(unprofiled(run)) == ["teacher: no profile: it is used as it is, without a training"]
