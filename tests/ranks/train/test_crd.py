"""Contrastive distillation under strategies: among the examples that a process reads at a time."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_alone, train_ranks
from tests.ranks.train.test_hidden_states import checkpointed
from tests.ranks.train.test_parity import assert_same_training
from tests.ranks.train.test_rkd import taught
from understudy.models.facts import WEIGHTS

DISTILL = [{"type": "crd", "weight": 0.5, "width": 8}, {"type": "labels"}]


@pytest.mark.parametrize(
    ("strategy", "processes", "parts"),
    tiers([("fsdp", 2, 2)], [("ddp", 2, 2), ("tp", 2, 1), ({"dp_replicate": 2, "dp_shard": 2}, 4, 4)]),
)
def test_each_strategy_trains_it_as_one_process_with_the_same_micro_batches(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int, parts: int
) -> None:
    teacher = taught(ranks, tmp_path / "teacher", text_examples, jobs.LLAMA, hidden_size=64)
    settings: dict[str, Any] = {"objectives": DISTILL, **teacher}
    train = {"gradient_accumulation_steps": parts}
    alone = jobs.spec(tmp_path / "alone", text_examples, jobs.LLAMA, train=train, **settings)
    train = {"strategy": strategy}
    spread = jobs.spec(tmp_path / "spread", text_examples, jobs.LLAMA, processes, train=train, **settings)
    train_alone(ranks, alone)
    ranks.run(processes, train_ranks, spread)
    assert_same_training(spread, alone)
    names = {f"model.objective.parts.0.{model}_projection.weight" for model in ("student", "teacher")}
    assert names <= checkpointed(spread)
    assert not any("projection" in name for name in load_file(spread.output / WEIGHTS))
