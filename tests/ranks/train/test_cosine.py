"""The cosine of hidden states under strategies, with a projection and without parameters."""

from pathlib import Path
from typing import Any

import pytest

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_alone, train_ranks
from tests.ranks.train.test_parity import assert_same_training


@pytest.mark.parametrize(
    ("width", "strategy"), tiers([(64, "fsdp"), (32, "cp")], [(32, "fsdp"), (64, "ddp"), (64, "tp"), (64, "cp")])
)
def test_each_strategy_trains_it_alike(
    ranks: Any, tmp_path: Path, text_examples: Path, width: int, strategy: str
) -> None:
    model = {**jobs.LLAMA, "config": {**jobs.LLAMA["config"], "hidden_size": width, "num_hidden_layers": 3}}
    teacher = jobs.spec(tmp_path / "teacher", text_examples, model)
    ranks.run(1, train_ranks, teacher)
    distill = [{"type": "cosine", "weight": 0.5}, {"type": "labels"}]
    taught: dict[str, Any] = {"teacher": str(teacher.output), "teacher_model": model, "objectives": distill, "seed": 2}
    alone = jobs.spec(tmp_path / "alone", text_examples, jobs.LLAMA, **taught)
    spread = jobs.spec(tmp_path / "spread", text_examples, jobs.LLAMA, 2, train={"strategy": strategy}, **taught)
    train_alone(ranks, alone)
    ranks.run(2, train_ranks, spread)
    assert_same_training(spread, alone)
