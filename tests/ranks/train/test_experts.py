"""Mixtures of experts are spread as other models are, except that no expert is split."""

from pathlib import Path
from typing import Any

import pytest

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers
from tests.ranks.train.test_parity import assert_spread_trains_the_same

MIXTRAL = {"type": "mixtral", "config": {**jobs.LLAMA["config"], "num_local_experts": 4, "num_experts_per_tok": 2}}
OFTEN: list[tuple[Any, int, int]] = [("fsdp", 2, 2)]
RARER: list[tuple[Any, int, int]] = [("ddp", 2, 2), ("pp", 2, 2), ("cp", 2, 1), ({"dp_shard": 2, "cp": 2}, 4, 2)]


@pytest.mark.parametrize(("strategy", "processes", "accumulate"), tiers(OFTEN, RARER))
def test_experts_train_the_same(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int, accumulate: int
) -> None:
    assert_spread_trains_the_same(ranks, tmp_path, text_examples, MIXTRAL, strategy, processes, accumulate)
