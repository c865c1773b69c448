"""Answers that several ranks generate, with whole models and with shards, one of them without a batch at the end."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.ranks.pool import Ranks
from tests.unit.evaluate import small
from understudy.data.prompts import Prompts
from understudy.evaluate.generation import generated, step_count
from understudy.evaluate.loading import load_models
from understudy.evaluate.metrics import FloatArray
from understudy.evaluate.shares import WHOLE, Share
from understudy.models.facts import read_description

CPU = torch.device("cpu")
LENGTHS, SIZE, MOST = [3, 7, 1, 5, 2], 2, 6


def answers(folder: Path, share: Share, ticks: list[int]) -> FloatArray:
    """The answers of a saved model to five prompts, in three batches."""
    ends = np.cumsum(LENGTHS)
    prompts = Prompts(np.arange(5), ends - LENGTHS, ends, ends, np.full(5, MOST), frozenset({2, 3}))
    inputs = [np.random.default_rng(length).integers(4, 9, length) for length in LENGTHS]
    descriptions = {"teacher": read_description(folder)}
    model = load_models({"teacher": folder}, descriptions, CPU, share.spread)["teacher"]
    with torch.inference_mode():
        tokens = generated(model, inputs, prompts, SIZE, CPU, ticks.append, share)
    assert share.rank or sum(ticks) == step_count(prompts, SIZE)
    return tokens


def answers_of_rank(folder: Path, sharded: bool) -> FloatArray:
    import torch.distributed as dist

    from understudy.parallel.apply import Spread
    from understudy.recipe import Degrees

    dist.init_process_group("gloo")
    spread = Spread(Degrees(dp_shard=2), CPU, torch.float32) if sharded else None
    try:
        return answers(folder, Share(int(os.environ["RANK"]), 2, spread), [])
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("sharded", [False, True])
def test_ranks_generate_what_one_process_does(ranks: Ranks, tmp_path: Path, sharded: bool) -> None:
    small.saved(tmp_path / "model", small.LLAMA, small.TEXT, 0)
    expected = answers(tmp_path / "model", WHOLE, [])
    first, _ = ranks.run(2, answers_of_rank, tmp_path / "model", sharded)
    np.testing.assert_array_equal(first, expected)
    assert len(np.unique(expected)) > 2
