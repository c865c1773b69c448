"""Three degrees at once take eight ranks, and train what one does. Rarely run: eight processes import torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ranks import Ranks
from tests.train import jobs
from tests.train.jobs import train_ranks
from tests.train.test_parity import DISTILL, GPT, assert_same_training, column, curve
from tests.train.test_pipelined import FIVE_LAYERS

pytestmark = pytest.mark.second_tier
LLAMA = {**FIVE_LAYERS["llama"], "config": {**FIVE_LAYERS["llama"]["config"], "num_key_value_heads": 4}}


@pytest.fixture(scope="module")
def eight() -> Iterator[Ranks]:
    pool = Ranks(8)
    yield pool
    pool.close()


THREE: list[dict[str, int]] = [
    {"pp": 2, "dp_shard": 2, "tp": 2},
    {"dp_replicate": 2, "dp_shard": 2, "tp": 2},
    {"pp": 2, "dp_replicate": 2, "dp_shard": 2},
    {"dp_shard": 2, "cp": 2, "tp": 2},
]


@pytest.mark.parametrize("taught", [False, True])
@pytest.mark.parametrize("degrees", THREE, ids=" x ".join)
def test_three_degrees_at_once_train_the_same(
    eight: Ranks, tmp_path: Path, text_examples: Path, degrees: dict[str, int], taught: bool
) -> None:
    changes: dict[str, Any] = {}
    if taught:
        teacher = jobs.spec(tmp_path / "teacher", text_examples, GPT)
        eight.run(1, train_ranks, teacher)
        changes = {"teacher": str(teacher.output), "teacher_model": GPT, "objectives": DISTILL, "seed": 2}
    alone = jobs.spec(tmp_path / "alone", text_examples, LLAMA, **changes)
    train = {"strategy": degrees, "gradient_accumulation_steps": 2}
    spread = jobs.spec(tmp_path / "spread", text_examples, LLAMA, 8, train=train, **changes)
    eight.run(1, train_ranks, alone)
    eight.run(8, train_ranks, spread)
    assert_same_training(spread, alone)
    np.testing.assert_allclose(column(curve(spread), "loss"), column(curve(alone), "loss"), rtol=1e-5)
