"""AdamW in eight bits: against a step written in numpy, in shards, in checkpoints, and beside AdamW in fp32."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_ranks
from tests.ranks.train.test_parity import column, curve
from tests.ranks.train.test_resume import assert_goes_on
from understudy.recipe import Optimizer
from understudy.train import adamw_8bit
from understudy.train.optimizers import build_optimizer, set_learning_rate

SETTINGS = Optimizer(name="adamw8bit", learning_rate=0.1, weight_decay=0.5, beta1=0.8, beta2=0.9)
LLAMA = {**jobs.LLAMA, "config": {**jobs.LLAMA["config"], "hidden_size": 64, "intermediate_size": 300}}
"""Its rows have 64 numbers, and 300: more than a block, and no number of them."""
EIGHT = {"optimizer": {**jobs.TRAIN["optimizer"], "name": "adamw8bit"}}  # type: ignore[dict-item]


def nearest(numbers: Any, signed: bool) -> Any:
    """Each rounded to the nearest of 256 levels times the largest of its block, in double precision."""
    decades = [
        10.0 ** (decade - 6) * (edges[1:] + edges[:-1]) / 2
        for decade in range(7)
        for edges in [np.linspace(0.1, 1, 2 ** (decade + (not signed)) + 1)]
    ]
    levels = np.concatenate([[0, 1], *decades, *(-decade for decade in decades if signed)])
    assert len(levels) == 256
    decoded = np.empty_like(numbers)
    for row, rounded in zip(numbers, decoded, strict=True):
        for first in range(0, len(row), 256):
            block = row[first : first + 256]
            scale = np.abs(block).max() or 1.0
            shares = block / scale
            picked = levels[np.abs(shares[:, None] - levels).argmin(1)]
            if not signed:
                picked[(picked == 0) & (shares > 0)] = np.sort(levels)[1]
            rounded[first : first + 256] = picked * scale
    return decoded


@pytest.mark.parametrize("at_a_time", [2**22, 700])
def test_a_step_is_the_papers_with_moments_that_were_rounded(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adamw_8bit, "AT_A_TIME", at_a_time)
    random = np.random.default_rng(0)
    net = nn.Linear(300, 20, bias=False)
    weights = net.weight.detach().double().numpy().copy()
    optimizer = build_optimizer(list(net.parameters()), SETTINGS)
    first = second = np.zeros_like(weights)
    for step in range(1, 5):
        gradient = random.normal(size=weights.shape) * np.logspace(-6, 0, 300)
        net.weight.grad = torch.from_numpy(gradient).float()
        set_learning_rate(optimizer, 0.1 / step)
        optimizer.step()
        weights = weights * (1 - 0.1 / step * 0.5)
        first, second = 0.8 * first + 0.2 * gradient, 0.9 * second + 0.1 * gradient**2
        weights -= 0.1 / step * first / (1 - 0.8**step) / (np.sqrt(second / (1 - 0.9**step)) + 1e-8)
        trained = net.weight.detach().double().numpy()
        # A number in the middle of two levels may go either way.
        assert (np.abs(trained - weights) > 1e-5).mean() < 0.01
        weights = trained.copy()
        first, second = nearest(first, signed=True), nearest(second, signed=False)


@pytest.mark.parametrize("signed", [True, False])
def test_numbers_are_rounded_as_bucketize_does(signed: bool) -> None:
    numbers = torch.cat([torch.linspace(-1, 1, 2**17), torch.logspace(-45, 0, 2**17), -torch.logspace(-45, 0, 2**17)])
    numbers = (numbers if signed else numbers.abs()).view(-1, 256)
    numbers[:, 0] = 1.0
    edges, _ = adamw_8bit._edges(signed=signed)
    expected = torch.bucketize(numbers, torch.from_numpy(edges[:-1]))
    codes, scales = torch.zeros(numbers.shape, dtype=torch.uint8), torch.zeros(len(numbers), 1)
    adamw_8bit._write(numbers, codes, scales, signed=signed)
    assert torch.equal((codes.int() + (127 if signed else 0)) % 256, expected.int())


def test_moments_take_a_quarter_and_vectors_and_small_weights_stay_in_fp32() -> None:
    net = nn.ModuleList([nn.Linear(256, 64), nn.Linear(8, 8), nn.Conv2d(16, 32, 3)])
    optimizer = build_optimizer(list(net.parameters()), SETTINGS)
    large, bias, small, _, kernel, _ = (optimizer.state[parameter] for parameter in net.parameters())
    for state, rows, columns in ((large, 64, 256), (kernel, 32, 144)):
        assert {state[name].dtype for name in adamw_8bit.MOMENTS} == {torch.uint8}
        assert state["exp_avg"].shape == (rows, columns)
        assert sum(value.nbytes for value in state.values()) == 2 * rows * (columns + 4) + 4
    assert {value.dtype for state in (bias, small) for value in state.values()} == {torch.float32}


def test_a_gradient_far_below_its_blocks_largest_moves_its_weight_no_further() -> None:
    net = nn.Linear(256, 16, bias=False)
    before = net.weight.detach().clone()
    optimizer = build_optimizer(list(net.parameters()), SETTINGS.model_copy(update={"weight_decay": 0.0}))
    for _ in range(3):
        net.weight.grad = torch.full_like(net.weight, 1e-5)
        net.weight.grad[:, 0] = 1.0
        optimizer.step()
    moved = (net.weight.detach() - before).abs()
    assert (moved <= 0.31).all()
    assert moved.max() == pytest.approx(0.3, abs=0.01)


WAYS: list[tuple[Any, int]] = [("fsdp", 2)]
RARER: list[tuple[Any, int]] = [
    ("ddp", 2),
    ("zero1", 2),
    ("hsdp", 4),
    ({"dp_replicate": 2, "dp_shard": 1}, 2),
    ("cp", 2),
    ("pp", 2),
]


@pytest.mark.parametrize(("strategy", "processes"), tiers(WAYS, RARER))
def test_every_strategy_trains_what_one_process_trains(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int
) -> None:
    """And that is nearly what AdamW in fp32 trains."""
    train = {**EIGHT, "gradient_accumulation_steps": 2}
    alone = jobs.spec(tmp_path / "alone", text_examples, LLAMA, train=train)
    spread = jobs.spec(tmp_path / "spread", text_examples, LLAMA, processes, train={**train, "strategy": strategy})
    plain = jobs.spec(tmp_path / "plain", text_examples, LLAMA)
    for job, count in ((alone, 1), (spread, processes), (plain, 1)):
        ranks.run(count, train_ranks, job)
    np.testing.assert_allclose(column(curve(spread), "loss"), column(curve(alone), "loss"), rtol=1e-3)
    ours, theirs = column(curve(alone), "loss"), column(curve(plain), "loss")
    np.testing.assert_allclose(ours, theirs, rtol=2e-2)
    assert (ours != theirs).any()


@pytest.mark.parametrize(("strategy", "processes"), tiers([("fsdp", 2)], [("single", 1), ("ddp", 2)]))
def test_a_job_goes_on_bit_for_bit(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int
) -> None:
    train = {**EIGHT, "strategy": strategy, "gradient_accumulation_steps": 2, "checkpoint_every": 3}
    assert_goes_on(ranks, processes, jobs.spec(tmp_path, text_examples, LLAMA, processes, train=train))


@pytest.mark.full
@pytest.mark.parametrize(("strategy", "processes"), [("single", 1), ("fsdp", 4)])
def test_a_checkpoint_loads_onto_another_number_of_shards(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: str, processes: int
) -> None:
    train: dict[str, Any] = {**EIGHT, "checkpoint_every": 3}
    before = jobs.spec(tmp_path, text_examples, LLAMA, 2, train={**train, "strategy": "fsdp"})
    ranks.run(2, train_ranks, before)
    unbroken = column(curve(before), "loss")
    shutil.rmtree(before.output)
    shutil.rmtree(Path(before.folder) / "checkpoints" / "step-9")
    after = jobs.spec(tmp_path, text_examples, LLAMA, processes, train={**train, "strategy": strategy})
    ranks.run(processes, train_ranks, after)
    np.testing.assert_array_equal(column(curve(after), "loss")[:6], unbroken[:6])
    np.testing.assert_allclose(column(curve(after), "loss"), unbroken, rtol=1e-3)
