"""Whose checkpoints a training goes on from that has none of its own, and whose it leaves alone."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.jobs.specs import job_spec
from understudy.errors import Stopped, UnderstudyError
from understudy.jobs import attempts
from understudy.jobs.specification import JobSpec
from understudy.recipe import Recipe
from understudy.revision import Revision
from understudy.steps import resharding
from understudy.steps.resharding import SPREAD, resume_resharded, training_of
from understudy.steps.step import Parts, Work
from understudy.store import Store

TRAIN: dict[str, Any] = {"steps": 40, "strategy": "fsdp"}
CODE = cast(Revision, {"source": "1"})


def decided(seed: int = 0, processes: int = 2, **train: Any) -> Parts:
    recipe = {"seed": seed, "train": {**TRAIN, **train}, "world": [1, processes], "device": "cpu"}
    return {"step": "teacher", "code": CODE, "recipe": recipe, "inputs": {"examples": "e" * 64}, "world": {}}


class Trainings:
    """A store, and trainings of which each has a lease and a job's folder below it."""

    def __init__(self, folder: Path, *, supervised: bool) -> None:
        self.store = Store(folder / "store", lease_seconds=0.5)
        self.run, self._supervised = SimpleNamespace(stop_requested=False), supervised

    def begin(self, key: str, seed: int = 0, **train: Any) -> tuple[Work, JobSpec]:
        lease = self.store.acquire(key * 64)
        assert lease
        context: dict[str, Any] = {"step": "teacher", "decided_by": decided(seed, **train), "lease": lease, "facts": {}}
        work = SimpleNamespace(store=self.store, run=self.run, report_waiting=lambda text: None, **context)
        spec = job_spec(lease.folder, train={**TRAIN, **train}, resources={"processes": 2}, supervised=self._supervised)
        return cast(Work, work), spec

    def interrupted(self, key: str, steps: tuple[int, ...], seed: int = 0, **train: Any) -> Path:
        """A training that somebody stopped: its folder of checkpoints."""
        work, spec = self.begin(key, seed, **train)
        resume_resharded(work, spec)
        attempt = attempts.begin(spec, 2) if spec.supervised else ""
        inside = work.lease.folder / attempt / "checkpoints"
        for step in steps:
            (inside / f"step-{step}").mkdir(parents=True)
            (inside / f"step-{step}" / "__0_0.distcp").write_text(f"{key} {step}")
        work.lease.release()
        return self.checkpoints(key)

    def checkpoints(self, key: str) -> Path:
        root = self.store.folder / "work" / (key * 64)
        return next(root.glob("*/attempt.*/checkpoints" if self._supervised else "*/checkpoints"))


@pytest.fixture(params=[False, True], ids=["here", "in a cluster"])
def trainings(request: pytest.FixtureRequest, tmp_path: Path) -> Trainings:
    return Trainings(tmp_path, supervised=request.param)


def adopted(spec: JobSpec) -> dict[str, str]:
    """The contents of the checkpoints in a job's last attempt, by name."""
    inside = attempts.latest(Path(spec.folder)) or Path(spec.folder)
    paths = (inside / "checkpoints").glob("step-*/*.distcp")
    return {path.parent.name: path.read_text() for path in paths}


def test_it_goes_on_from_what_came_furthest_under_other_degrees(trainings: Trainings) -> None:
    trainings.interrupted("a", (10, 20), strategy="ddp")
    trainings.interrupted("b", (20, 30), strategy="tp", precision="bf16")
    work, spec = trainings.begin("c", resume_resharded=True)
    resume_resharded(work, spec)
    assert adopted(spec) == {"step-20": "b 20", "step-30": "b 30"}
    assert work.facts == {"resumed_from": "step 30 of tp on 1 x 2 processes"}
    if spec.supervised:
        assert attempts.begin(spec, 2).startswith("attempt.1.")
        assert adopted(spec) == {"step-20": "b 20", "step-30": "b 30"}


def test_what_it_went_on_from_is_told_after_a_kill_too(trainings: Trainings) -> None:
    trainings.interrupted("a", (10,), strategy="ddp")
    work, spec = trainings.begin("c", resume_resharded=True)
    resume_resharded(work, spec)
    work.facts.clear()
    shutil.rmtree(trainings.store.folder / "work" / ("a" * 64))
    resume_resharded(work, spec)
    assert work.facts == {"resumed_from": "step 10 of ddp on 1 x 2 processes"}


def test_it_does_so_only_where_the_recipe_asks_for_it(trainings: Trainings) -> None:
    trainings.interrupted("a", (10,), strategy="ddp")
    work, spec = trainings.begin("c")
    resume_resharded(work, spec)
    assert (adopted(spec), work.facts) == ({}, {})


def test_its_own_checkpoints_come_first(trainings: Trainings) -> None:
    trainings.interrupted("c", (10,), resume_resharded=True)
    trainings.interrupted("a", (30,), strategy="ddp")
    work, spec = trainings.begin("c", resume_resharded=True)
    resume_resharded(work, spec)
    assert adopted(spec) == {"step-10": "c 10"}


def test_another_training_s_are_left_alone(trainings: Trainings) -> None:
    trainings.interrupted("a", (10,), seed=1)
    trainings.interrupted("b", (10,), batch_size=50)
    work, spec = trainings.begin("c", resume_resharded=True)
    resume_resharded(work, spec)
    assert adopted(spec) == {}


def test_a_training_that_goes_on_is_not_taken_over_but_told(trainings: Trainings) -> None:
    folder = trainings.interrupted("a", (10,), strategy="ddp")
    running, _ = trainings.begin("a", strategy="ddp")
    work, spec = trainings.begin("c", resume_resharded=True)
    with pytest.raises(UnderstudyError, match="is running as ddp on 1 x 2 processes; stop that run"):
        resume_resharded(work, spec)
    trainings.run.stop_requested = True
    with pytest.raises(Stopped):
        resume_resharded(work, spec)
    running.lease.release()
    resume_resharded(work, spec)
    assert adopted(spec) == {"step-10": "a 10"}
    assert not folder.exists()  # it has had another holder's name since
    assert list(trainings.checkpoints("a").glob("step-10/*.distcp"))


def test_links_that_a_rank_left_are_not_followed(trainings: Trainings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = trainings.interrupted("a", (10,), strategy="ddp")
    (folder / "step-10" / "link.distcp").symlink_to(tmp_path / "secret")
    work, spec = trainings.begin("c", resume_resharded=True)
    resume_resharded(work, spec)
    assert adopted(spec) == {"step-10": "a 10"}


def test_a_checkpoint_that_is_gone_while_it_is_linked_is_passed_over(
    trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings.interrupted("a", (10, 20), strategy="ddp")
    link = resharding._link

    def vanishing_link(checkpoint: Path, target: Path) -> None:
        if checkpoint.name == "step-20":
            raise FileNotFoundError
        link(checkpoint, target)

    monkeypatch.setattr(resharding, "_link", vanishing_link)
    work, spec = trainings.begin("c", resume_resharded=True)
    resume_resharded(work, spec)
    assert adopted(spec) == {"step-10": "a 10"}


def test_a_training_is_one_whatever_it_is_spread_over() -> None:
    changed = decided(processes=4, strategy="pp", precision="bf16", gradient_accumulation_steps=4)
    assert training_of(decided()) == training_of(changed)
    assert training_of(decided()) != training_of(decided(batch_size=3))
    assert training_of(decided()) != training_of({**decided(), "inputs": {"examples": "f" * 64}})


def test_every_setting_that_is_left_out_is_one_of_the_recipe_s() -> None:
    settings = Recipe.model_json_schema()["$defs"]["Train"]["properties"]
    assert set(SPREAD) <= set(settings)
