from pathlib import Path
from typing import Any

import pytest

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers
from tests.ranks.train.test_parity import assert_spread_trains_the_same

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
    assert_spread_trains_the_same(ranks, tmp_path, text_examples, QWEN, strategy, processes, 2)
