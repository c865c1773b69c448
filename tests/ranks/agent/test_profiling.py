"""A recorded training computes the same as an unrecorded one, and reports where a step's time went."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_ranks
from tests.unit.jobs.specs import job_spec
from understudy.agent import profiling
from understudy.agent.profiling import Plan, Recording
from understudy.jobs.files import read
from understudy.jobs.specification import JobSpec
from understudy.models.weight_files import weight_files
from understudy.train.profile import RANK_PROFILE, RankProfile
from understudy.train.training import Course

GPT = {**jobs.GPT, "config": {**jobs.GPT["config"], **jobs.NO_DROPOUT}}


def profile_of(job: JobSpec, rank: int = 0) -> RankProfile:
    profile = read(job.profile_of(rank), RANK_PROFILE)
    assert profile is not None
    return profile


def marks(job: JobSpec) -> set[str]:
    with gzip.open(job.trace(0)) as stream:
        events = json.load(stream)["traceEvents"]
    return {event["name"] for event in events if event["name"].startswith("understudy: ")}


STRATEGIES: list[Any] = ["ddp", *(pytest.param(name, marks=pytest.mark.full) for name in ("fsdp", "pp"))]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_recorded_training_is_the_same_bit_for_bit(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: str
) -> None:
    train = {"strategy": strategy, "gradient_accumulation_steps": 2}
    plain = jobs.spec(tmp_path / "plain", text_examples, GPT, 2, train=train)
    watched = jobs.spec(tmp_path / "watched", text_examples, GPT, 2, train=train, profile=True)
    ranks.run(2, train_ranks, plain)
    ranks.run(2, train_ranks, watched)
    for path in [plain.output / "history.json", *weight_files(plain.output)]:
        assert path.read_bytes() == (watched.output / path.name).read_bytes()
    assert not list(plain.rank_logs.glob("*"))
    for rank in (0, 1):
        profile = profile_of(watched, rank)
        assert (profile["rank"], profile["world_size"], profile["first_step"], profile["steps"]) == (rank, 2, 7, 3)
        assert sum(profile["kinds"].values()) == pytest.approx(profile["recorded_seconds"], rel=1e-6)
        assert 0 < profile["kinds"]["communication"] <= profile["sent"] < profile["recorded_seconds"]
        for kind in ("data", "forward", "backward", "optimizer"):
            assert profile["kinds"][kind] > 0, kind
        assert profile["kinds"]["teacher"] == 0
        assert profile["seconds"] > 0
    assert marks(watched) >= {f"understudy: {kind}" for kind in ("step", "data", "forward", "backward", "optimizer")}


@pytest.mark.full
def test_ranks_that_share_a_layer_compute_together_what_one_computes(
    ranks: Any, tmp_path: Path, text_examples: Path
) -> None:
    alone = jobs.spec(tmp_path / "alone", text_examples, jobs.LLAMA, profile=True)
    shared = jobs.spec(tmp_path / "shared", text_examples, jobs.LLAMA, 2, train={"strategy": "tp"}, profile=True)
    ranks.run(1, train_ranks, alone)
    ranks.run(2, train_ranks, shared)
    assert sum(profile_of(shared, rank)["flop"] for rank in (0, 1)) == pytest.approx(profile_of(alone)["flop"], rel=0.1)
    assert profile_of(alone)["flop"] > 0
    assert profile_of(alone)["kinds"]["communication"] < profile_of(shared)["kinds"]["communication"]


@pytest.mark.full
def test_the_teachers_part_is_told_apart(ranks: Any, tmp_path: Path, text_examples: Path) -> None:
    teacher = jobs.spec(tmp_path / "teacher", text_examples, GPT)
    ranks.run(1, train_ranks, teacher)
    distilled: dict[str, Any] = {
        "teacher": str(teacher.output),
        "teacher_model": GPT,
        "objectives": [{"type": "logits"}],
    }
    for strategy in ("ddp", "pp"):
        train = {"strategy": strategy, "gradient_accumulation_steps": 2}
        student = jobs.spec(tmp_path / strategy, text_examples, GPT, 2, train=train, profile=True, **distilled)
        ranks.run(2, train_ranks, student)
        assert profile_of(student)["kinds"]["teacher"] > 0


PLANS = [(0, (0, 0, 0)), (2, (0, 0, 0)), (3, (1, 1, 1)), (9, (3, 3, 3)), (12, (3, 4, 4)), (99, (3, 5, 5))]


@pytest.mark.parametrize(("steps", "plan"), PLANS)
def test_short_trainings_are_recorded_for_a_third_of_their_steps(steps: int, plan: tuple[int, int, int]) -> None:
    assert Plan.for_steps(steps) == Plan(*plan)


def test_of_long_steps_one_is_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(profiling, "LONG_ENOUGH", 0.0)
    monkeypatch.setattr(profiling, "dist", SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: 1))
    job = job_spec(tmp_path)
    around = Recording(job, Course(9, torch.device("cpu"), torch.float32, lambda step: 10 * step))
    for step in range(9):
        with around(step):
            torch.randn(4, 4) @ torch.randn(4, 4)
    profile = profile_of(job)
    assert (profile["first_step"], profile["steps"], profile["targets"]) == (7, 1, 60)
    assert profile["flop"] == 2 * 4 * 4 * 4


def test_a_training_of_two_steps_leaves_nothing(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    short = jobs.spec(tmp_path, image_examples, jobs.VIT, train={"steps": 2}, profile=True)
    ranks.run(1, train_ranks, short)
    assert (short.output / "history.json").exists()
    assert not list(short.rank_logs.glob("*"))
