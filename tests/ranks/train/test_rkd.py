"""Relations between examples under strategies: those of the examples that a process reads at a time."""

from pathlib import Path
from typing import Any

import pytest

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_alone, train_ranks
from tests.ranks.train.test_parity import assert_same_training, column, curve

DISTILL = [{"type": "rkd", "weight": 0.5}, {"type": "labels"}]


def taught(ranks: Any, folder: Path, examples: Path, model: dict[str, Any], **wider: Any) -> dict[str, Any]:
    """Changes of a job that make it the training of a student, by a larger teacher."""
    model = {**model, "config": {**model["config"], **wider}}
    teacher = jobs.spec(folder, examples, model)
    ranks.run(1, train_ranks, teacher)
    return {"teacher": str(teacher.output), "teacher_model": model, "seed": 2}


@pytest.mark.parametrize(
    ("strategy", "processes", "parts"),
    tiers([("fsdp", 2, 2)], [("ddp", 2, 2), ("tp", 2, 1), ({"dp_replicate": 2, "dp_shard": 2}, 4, 4)]),
)
def test_each_strategy_trains_it_as_one_process_with_the_same_micro_batches(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int, parts: int
) -> None:
    """Batches of 16, and of 12 at an epoch's end, where one of four micro-batches is empty."""
    teacher = taught(ranks, tmp_path / "teacher", text_examples, jobs.LLAMA, hidden_size=64)
    train = {"gradient_accumulation_steps": parts}
    settings: dict[str, Any] = {"objectives": DISTILL, **teacher}
    alone = jobs.spec(tmp_path / "alone", text_examples, jobs.LLAMA, train=train, **settings)
    train = {"strategy": strategy}
    spread = jobs.spec(tmp_path / "spread", text_examples, jobs.LLAMA, processes, train=train, **settings)
    train_alone(ranks, alone)
    ranks.run(processes, train_ranks, spread)
    assert_same_training(spread, alone)


def test_the_division_of_a_batch_decides_what_is_compared(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    teacher = taught(ranks, tmp_path / "teacher", image_examples, jobs.VIT, hidden_size=24)
    settings: dict[str, Any] = {"objectives": DISTILL, **teacher}
    whole, divided = (
        jobs.spec(
            tmp_path / str(parts), image_examples, jobs.VIT, train={"gradient_accumulation_steps": parts}, **settings
        )
        for parts in (1, 2)
    )
    for job in (whole, divided):
        train_alone(ranks, job)
    assert column(curve(whole), "loss")[0] != pytest.approx(column(curve(divided), "loss")[0], abs=1e-5)
