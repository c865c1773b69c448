"""The moving average of weights: against numpy, under every strategy, through checkpoints, and in validation."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_ranks
from tests.ranks.train.test_parity import weights
from understudy.train.averages import Averages


def test_it_is_the_sum_that_decays() -> None:
    weight = nn.Parameter(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    averages, expected = Averages(optimizer, 0.6), weight.detach().numpy().astype(np.float64)
    for step in range(12):
        with torch.no_grad():
            weight.mul_(0.9).add_(0.1 * step)
        averages.update(step)
        decay = min(0.6, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * weight.detach().numpy()
    last = weight.detach().clone()
    averages.swap()
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-6)
    averages.swap()
    assert torch.equal(weight, last)


WAYS: list[tuple[Any, int]] = [("ddp", 2), ("fsdp", 2), ({"dp_shard": 2, "tp": 2}, 4), ({"pp": 2, "dp_shard": 2}, 4)]


@pytest.mark.parametrize(
    ("strategy", "processes", "keep_best"),
    tiers(
        [(*case, number % 2 == 0) for number, case in enumerate(WAYS)],
        [(*case, number % 2 == 1) for number, case in enumerate(WAYS)],
    ),
)
def test_it_is_what_is_validated_and_kept_under_every_strategy(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int, keep_best: bool
) -> None:
    train = {"average": 0.9, "validate_every": 3, "keep_best": keep_best, "gradient_accumulation_steps": 2}
    alone = jobs.spec(tmp_path / "alone", text_examples, jobs.LLAMA, train=train)
    plain = jobs.spec(tmp_path / "plain", text_examples, jobs.LLAMA, train={**train, "average": None})
    spread = jobs.spec(tmp_path / "spread", text_examples, jobs.LLAMA, processes, train={**train, "strategy": strategy})
    for job, count in ((alone, 1), (plain, 1), (spread, processes)):
        ranks.run(count, train_ranks, job)
    averaged, expected, without_average = (
        [
            (point["loss"], point.get("validation_loss", 0.0))
            for point in json.loads((job.output / "history.json").read_text())
        ]
        for job in (spread, alone, plain)
    )
    np.testing.assert_allclose(averaged, expected, rtol=1e-5)
    assert [loss for loss, _ in expected] == [loss for loss, _ in without_average], "it changes no step"
    assert expected[-1][1] != without_average[-1][1]
    for name, tensor in weights(spread).items():
        torch.testing.assert_close(tensor, weights(alone)[name], rtol=1e-3, atol=2e-4)


def test_a_job_goes_on_with_the_same_average(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    train = {"average": 0.9, "checkpoint_every": 3, "strategy": "fsdp"}
    job = jobs.spec(tmp_path, image_examples, jobs.VIT, 2, train=train)
    ranks.run(2, train_ranks, job)
    unbroken = weights(job)
    shutil.rmtree(job.output)
    shutil.rmtree(Path(job.folder) / "checkpoints" / "step-9")
    ranks.run(2, train_ranks, job)
    for name, tensor in weights(job).items():
        assert torch.equal(tensor, unbroken[name])
