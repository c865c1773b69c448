from pathlib import Path
from typing import Any

import pytest

from tests.train import jobs
from tests.train.jobs import tiers, train_ranks
from tests.train.test_parity import assert_same_training

QWEN = {"type": "qwen3", "config": {**jobs.LLAMA["config"], "head_dim": 8}}
"""With a norm of each head, whose weight all of them share."""
OFTEN: list[tuple[Any, int]] = [("tp", 2)]
RARER: list[tuple[Any, int]] = [
    ({"dp_shard": 2, "tp": 2}, 4),
    ({"dp_replicate": 2, "tp": 2}, 4),
    ({"pp": 2, "tp": 2}, 4),
    ({"tp": 2, "sequence_parallel": True}, 2),
]


@pytest.mark.parametrize(("strategy", "processes"), tiers(OFTEN, RARER))
def test_a_weight_that_heads_share_gets_the_gradients_of_all_once_for_each_micro_batch(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int
) -> None:
    train = {"strategy": strategy, "gradient_accumulation_steps": 2}
    alone = jobs.spec(tmp_path / "alone", text_examples, QWEN)
    spread = jobs.spec(tmp_path / "spread", text_examples, QWEN, processes, train=train)
    ranks.run(1, train_ranks, alone)
    ranks.run(processes, train_ranks, spread)
    assert_same_training(spread, alone)
