"""Three degrees at once take eight ranks, and train as one rank does. Rarely run: eight processes import torch."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ranks.pool import Ranks
from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_ranks
from tests.ranks.train.test_parity import DISTILL, GPT, assert_same_training, column, curve, train_until
from tests.ranks.train.test_pipelined import FIVE_LAYERS

pytestmark = pytest.mark.full
LLAMA = {**FIVE_LAYERS["llama"], "config": {**FIVE_LAYERS["llama"]["config"], "num_key_value_heads": 4}}
TIED = {**LLAMA, "config": {**LLAMA["config"], "tie_word_embeddings": True}}


@pytest.fixture(scope="module")
def eight() -> Iterator[Ranks]:
    pool = Ranks(8)
    yield pool
    pool.close()


@pytest.fixture
def many_tokens(text_examples: Path, tmp_path: Path) -> Path:
    """Of a vocabulary so large that a tied weight is larger than a stage's blocks together."""
    folder = tmp_path / "many"
    shutil.copytree(text_examples, folder)
    facts = json.loads((folder / "examples.json").read_text())
    (folder / "examples.json").write_text(json.dumps({**facts, "vocab_size": 2048}))
    return folder


THREE: list[dict[str, int]] = [
    {"pp": 2, "dp_shard": 2, "tp": 2},
    {"dp_replicate": 2, "dp_shard": 2, "tp": 2},
    {"pp": 2, "dp_replicate": 2, "dp_shard": 2},
    {"dp_shard": 2, "cp": 2, "tp": 2},
]
ENDS: list[dict[str, int]] = [{"pp": 2, "dp_shard": 2, "tp": 2}, {"pp": 2, "cp": 2, "tp": 2}]


@pytest.mark.parametrize("taught", [False, True])
@pytest.mark.parametrize("degrees", THREE, ids=" x ".join)
def test_three_degrees_at_once_train_the_same(
    eight: Ranks, tmp_path: Path, text_examples: Path, degrees: dict[str, int], taught: bool
) -> None:
    assert_eight_train_as_one(eight, tmp_path, text_examples, LLAMA, degrees, taught)


@pytest.mark.parametrize("taught", [False, True])
@pytest.mark.parametrize("degrees", ENDS, ids=" x ".join)
def test_a_tied_weight_at_both_ends_of_a_pipeline_trains_the_same(
    eight: Ranks, tmp_path: Path, many_tokens: Path, degrees: dict[str, int], taught: bool
) -> None:
    assert_eight_train_as_one(eight, tmp_path, many_tokens, TIED, degrees, taught)


def assert_eight_train_as_one(
    eight: Ranks, tmp_path: Path, examples: Path, model: dict[str, Any], degrees: dict[str, int], taught: bool
) -> None:
    """The same losses, norms and weights."""
    changes: dict[str, Any] = {}
    if taught:
        teacher = jobs.spec(tmp_path / "teacher", examples, GPT)
        eight.run(1, train_ranks, teacher)
        changes = {"teacher": str(teacher.output), "teacher_model": GPT, "objectives": DISTILL, "seed": 2}
    alone = jobs.spec(tmp_path / "alone", examples, model, **changes)
    train = {"strategy": degrees, "gradient_accumulation_steps": 2}
    spread = jobs.spec(tmp_path / "spread", examples, model, 8, train=train, **changes)
    eight.run(1, train_ranks, alone)
    eight.run(8, train_ranks, spread)
    assert_same_training(spread, alone)
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose(column(curve(spread), name), column(curve(alone), name), rtol=1e-5)


@pytest.mark.parametrize(("first", "then"), [ENDS, ENDS[::-1]], ids=["shards first", "sequences first"])
def test_a_tied_weight_in_a_checkpoint_goes_on_under_other_degrees(
    eight: Ranks, tmp_path: Path, many_tokens: Path, first: dict[str, int], then: dict[str, int]
) -> None:
    """Saved at step 4 of 9: the losses are those of a training that never stopped."""
    alone = jobs.spec(tmp_path / "whole", many_tokens, TIED)
    eight.run(1, train_ranks, alone)
    for degrees, every, stop_at in ((first, 4, 4), (then, 100, 9)):
        train = {"strategy": degrees, "checkpoint_every": every, "gradient_accumulation_steps": 2}
        job = jobs.spec(tmp_path / "job", many_tokens, TIED, 8, train=train)
        eight.run(8, train_until, job, stop_at)
    np.testing.assert_allclose(column(curve(job), "loss"), column(curve(alone), "loss"), rtol=1e-5)
