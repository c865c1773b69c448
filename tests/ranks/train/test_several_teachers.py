"""A student of several teachers learns the same under each strategy, and from their mean or from one by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_alone, train_ranks
from tests.ranks.train.test_parity import assert_same_training
from understudy.models.facts import HISTORY
from understudy.store.files import read_json

WIDER = {**jobs.LLAMA, "config": {**jobs.LLAMA["config"], "hidden_size": 64}}
OBJECTIVES = [{"type": "labels", "weight": 0.3}, {"type": "logits", "weight": 0.7}]


@pytest.fixture
def teachers(ranks: Any, tmp_path: Path, text_examples: Path) -> dict[str, Any]:
    """Two trained teachers of different widths."""
    saved_teachers = {}
    for name, model in (("narrow", jobs.LLAMA), ("wide", WIDER)):
        job = jobs.spec(tmp_path / name, text_examples, model)
        ranks.run(1, train_ranks, job)
        saved_teachers[name] = {"folder": str(job.output), "model": model}
    return saved_teachers


@pytest.mark.parametrize(
    ("strategy", "processes"),
    tiers([("fsdp", 2), ("pp", 2)], [("ddp", 2), ("tp", 2), ({"dp_shard": 2, "pp": 2}, 4)]),
)
def test_each_strategy_trains_it_alike(
    ranks: Any, tmp_path: Path, text_examples: Path, teachers: dict[str, Any], strategy: Any, processes: int
) -> None:
    changes: dict[str, Any] = {"teachers": teachers, "objectives": OBJECTIVES, "seed": 2}
    alone = jobs.spec(tmp_path / "alone", text_examples, jobs.LLAMA, **changes)
    train = {"strategy": strategy, "gradient_accumulation_steps": 2}
    spread = jobs.spec(tmp_path / "spread", text_examples, jobs.LLAMA, processes, train=train, **changes)
    train_alone(ranks, alone)
    ranks.run(processes, train_ranks, spread)
    assert_same_training(spread, alone)


def test_a_named_teacher_is_the_only_one(
    ranks: Any, tmp_path: Path, text_examples: Path, teachers: dict[str, Any]
) -> None:
    """Its losses are those of a training that has no other teacher."""
    named = [{**section, **({"teacher": "wide"} if section["type"] == "logits" else {})} for section in OBJECTIVES]
    both = jobs.spec(tmp_path / "both", text_examples, jobs.LLAMA, teachers=teachers, objectives=named)
    only = {"wide": teachers["wide"]}
    single = jobs.spec(tmp_path / "one", text_examples, jobs.LLAMA, teachers=only, objectives=OBJECTIVES)
    mean = jobs.spec(tmp_path / "mean", text_examples, jobs.LLAMA, teachers=teachers, objectives=OBJECTIVES)
    for job in (both, single, mean):
        ranks.run(1, train_ranks, job)
    losses = [[point["loss"] for point in read_json(job.output / HISTORY)] for job in (both, single, mean)]
    assert losses[0] == losses[1]
    assert not np.allclose(losses[0], losses[2])
