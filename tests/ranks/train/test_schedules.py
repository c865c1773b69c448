"""Weights of objectives that follow a schedule, over the steps of a training."""

from pathlib import Path
from typing import Any

import pytest

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_alone, train_ranks
from tests.ranks.train.test_parity import assert_same_training, column, curve
from tests.ranks.train.test_resume import assert_goes_on

DOWN = {"start": 1.0, "end": 0.0, "steps": 6}
UP = {"start": 0.0, "end": 1.0, "form": "cosine"}
ON_LOGITS = [{"type": "labels", "weight": UP}, {"type": "logits", "weight": DOWN}]
WITH_STATES = [*ON_LOGITS, {"type": "hidden_states", "weight": DOWN}]


@pytest.fixture
def teacher(ranks: Any, tmp_path: Path, text_examples: Path) -> str:
    job = jobs.spec(tmp_path / "teacher", text_examples, jobs.LLAMA)
    train_alone(ranks, job)
    return str(job.output)


@pytest.mark.parametrize(
    ("strategy", "processes", "objectives"),
    tiers([("pp", 2, ON_LOGITS), ("ddp", 2, WITH_STATES)], [("fsdp", 2, ON_LOGITS), ("fsdp", 2, WITH_STATES)]),
)
def test_each_strategy_trains_alike(
    ranks: Any, tmp_path: Path, text_examples: Path, teacher: str, strategy: str, processes: int, objectives: Any
) -> None:
    """Also an objective with parameters whose weight is 0 in the last steps."""
    changes: dict[str, Any] = {"teacher": teacher, "objectives": objectives, "seed": 2}
    alone = jobs.spec(tmp_path / "alone", text_examples, jobs.LLAMA, **changes)
    train = {"strategy": strategy, "gradient_accumulation_steps": 2}
    spread = jobs.spec(tmp_path / "spread", text_examples, jobs.LLAMA, processes, train=train, **changes)
    train_alone(ranks, alone)
    ranks.run(processes, train_ranks, spread)
    assert_same_training(spread, alone)


@pytest.mark.parametrize("objectives", [ON_LOGITS, WITH_STATES], ids=["on_logits", "with_states"])
def test_a_training_resumes_at_the_weights_of_its_step(
    ranks: Any, tmp_path: Path, text_examples: Path, teacher: str, objectives: Any
) -> None:
    """Bit for bit; and a weight of another end changes the loss of all steps but the first."""
    changes: dict[str, Any] = {"teacher": teacher, "train": {"checkpoint_every": 3}}
    job = jobs.spec(tmp_path / "job", text_examples, jobs.LLAMA, objectives=objectives, **changes)
    assert_goes_on(ranks, 1, job)
    higher = [{**objectives[0], "weight": {**UP, "end": 2.0}}, *objectives[1:]]
    other = jobs.spec(tmp_path / "other", text_examples, jobs.LLAMA, objectives=higher, **changes)
    ranks.run(1, train_ranks, other)
    differ = column(curve(job), "loss") != column(curve(other), "loss")
    assert list(differ) == [False] + [True] * 8
