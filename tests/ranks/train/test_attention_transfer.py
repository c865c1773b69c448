"""Attention maps under strategies: of a transformer's positions, and of a convolutional network's pixels."""

from pathlib import Path
from typing import Any

import pytest

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_alone, train_ranks
from tests.ranks.train.test_parity import assert_same_training
from tests.ranks.train.test_rkd import taught

DISTILL = [{"type": "attention_transfer", "weight": 0.5}, {"type": "labels"}]
CONVNEXT = {
    "type": "convnext",
    "config": {"num_stages": 2, "hidden_sizes": [8, 12], "depths": [1, 1], "patch_size": 2, "drop_path_rate": 0.0},
}
MODELS = {"images": (jobs.VIT, {"hidden_size": 24}), "texts": (jobs.LLAMA, {"num_hidden_layers": 4})}
MODELS["stages"] = (CONVNEXT, {"hidden_sizes": [12, 16], "depths": [1, 2]})


@pytest.mark.parametrize(
    ("model", "strategy"),
    tiers([("stages", "fsdp"), ("texts", "tp")], [("images", "fsdp"), ("stages", "ddp"), ("texts", "zero1")]),
)
def test_each_strategy_trains_it_alike(
    ranks: Any, tmp_path: Path, image_examples: Path, text_examples: Path, model: str, strategy: str
) -> None:
    examples, (student, wider) = text_examples if model == "texts" else image_examples, MODELS[model]
    settings: dict[str, Any] = {
        "objectives": DISTILL,
        **taught(ranks, tmp_path / "teacher", examples, student, **wider),
    }
    alone = jobs.spec(tmp_path / "alone", examples, student, **settings)
    spread = jobs.spec(tmp_path / "spread", examples, student, 2, train={"strategy": strategy}, **settings)
    train_alone(ranks, alone)
    ranks.run(2, train_ranks, spread)
    assert_same_training(spread, alone)
