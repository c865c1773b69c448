"""A loss scale: it follows overflows as torch's, all ranks skip the same steps, and a checkpoint holds it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_ranks
from tests.ranks.train.test_guard import hurt
from tests.ranks.train.test_parity import FOUR_HEADS, column, curve, weights
from tests.ranks.train.test_resume import assert_goes_on
from understudy.errors import UnderstudyError
from understudy.jobs.specification import JobSpec

HALF = {"precision": "fp16"}
RARER: list[tuple[Any, int]] = [("zero1", 2), ("tp", 2), ("cp", 2), ({"dp_shard": 2, "tp": 2}, 4)]
WAYS = [("single", 1), ("ddp", 2), ("fsdp", 2), ("pp", 2)]
ALL = [*WAYS, *(pytest.param(*case, marks=pytest.mark.full) for case in RARER)]


def test_it_follows_overflows_as_torchs_scaler_does(ranks: Any) -> None:
    finite = (np.random.default_rng(0).random(300) > 0.1).tolist()
    ours, theirs = ranks.run(1, scales, finite)[0]
    assert ours == theirs
    assert len(set(ours)) > 4


def scales(finite: list[bool]) -> tuple[list[float], list[float]]:
    """Of each step, ours and those of torch.amp.GradScaler; it grows after five steps."""
    from understudy.train import loss_scale

    torch.distributed.init_process_group("gloo")
    theirs = torch.amp.GradScaler("cpu", growth_interval=5)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    history: tuple[list[float], list[float]] = ([], [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_scale, "GROWS_AFTER", 5)
        patch.setattr(loss_scale, "LEAST", 0.0)
        ours = loss_scale.LossScale()
        for fits in finite:
            theirs.scale(weight.sum()).backward()
            weight.grad = torch.ones(1) if fits else torch.full((1,), torch.inf)
            theirs.step(optimizer)
            theirs.update()
            assert ours.allows(torch.tensor(1.0 if fits else torch.inf)) is fits
            history[0].append(ours.value)
            history[1].append(theirs.get_scale())
    torch.distributed.destroy_process_group()
    return history


@pytest.mark.parametrize(("strategy", "processes"), ALL)
def test_fp16_stays_near_fp32(ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int) -> None:
    """Of a loss at most 5e-4 is lost in nine steps. The gradients' norm shows that scales are taken out again."""
    train = {"strategy": strategy, "gradient_accumulation_steps": 2}
    full = jobs.spec(tmp_path / "fp32", text_examples, FOUR_HEADS)
    half = jobs.spec(tmp_path / "fp16", text_examples, FOUR_HEADS, processes, train=train | HALF)
    ranks.run(1, train_ranks, full)
    ranks.run(processes, train_ranks, half)
    for name, drift in (("loss", 5e-4), ("grad_norm", 1e-2)):
        np.testing.assert_allclose(column(curve(half), name), column(curve(full), name), rtol=drift)
    assert not np.array_equal(column(curve(half), "loss"), column(curve(full), "loss"))
    assert not any("overflow" in point for point in curve(half))


def train_from(job: JobSpec, initial: float, grows_after: int = 2000) -> None:
    """A training whose scale begins elsewhere."""
    from understudy.train import loss_scale

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_scale, "INITIAL", initial)
        patch.setattr(loss_scale, "GROWS_AFTER", grows_after)
        train_ranks(job)


@pytest.mark.parametrize(("strategy", "processes"), ALL)
def test_a_step_that_overflows_is_skipped_by_all(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int
) -> None:
    """Even under a guard that would go back after the first: weights that were not changed are not at fault."""
    train = {"strategy": strategy, "gradient_accumulation_steps": 2, "guard": {"rollback_after": 1}}
    job = jobs.spec(tmp_path, text_examples, FOUR_HEADS, processes, train=train | HALF)
    ranks.run(processes, train_from, job, 2.0**25)
    over = [point["overflow"] for point in curve(job) if "overflow" in point]
    assert over == [2.0 ** (25 - number) for number in range(len(over))]
    assert 1 <= len(over) < 9
    assert not any("skipped" in point or "passed_over" in point for point in curve(job))
    assert all(("overflow" in point) is (point["grad_norm"] is None) for point in curve(job))
    assert all(tensor.isfinite().all() for tensor in weights(job).values())


def test_a_loss_that_is_no_number_ends_the_training_all_the_same(
    ranks: Any, tmp_path: Path, image_examples: Path
) -> None:
    job = jobs.spec(tmp_path, image_examples, jobs.VIT, train=HALF)
    assert ranks.run(1, failure, job)[0].startswith("the loss or its gradient is not a number any more at step 4")


def failure(job: JobSpec) -> str:
    with hurt({3: float("nan")}, None), pytest.raises(UnderstudyError) as caught:
        train_ranks(job)
    torch.distributed.destroy_process_group()
    return str(caught.value)


def test_gradients_that_overflow_at_any_scale_are_told(ranks: Any) -> None:
    assert ranks.run(1, steps_until_it_fails) == [16]


def steps_until_it_fails() -> int:
    from understudy.train.loss_scale import LossScale

    torch.distributed.init_process_group("gloo")
    scale, overflow = LossScale(), torch.tensor(torch.inf)
    steps = 0
    while scale.value > 1:
        assert not scale.allows(overflow)
        steps += 1
    with pytest.raises(UnderstudyError, match="overflow in fp16 however small the loss scale is; use precision bf16"):
        scale.allows(overflow)
    torch.distributed.destroy_process_group()
    return steps


@pytest.mark.parametrize(("strategy", "processes"), [("single", 1), pytest.param("fsdp", 2, marks=pytest.mark.full)])
def test_a_job_goes_on_with_the_scale_that_it_had(
    ranks: Any, tmp_path: Path, image_examples: Path, strategy: str, processes: int
) -> None:
    train = {"strategy": strategy, "checkpoint_every": 3} | HALF
    job = jobs.spec(tmp_path, image_examples, jobs.VIT, processes, train=train)
    assert_goes_on(Scaled(ranks), processes, job)
    progress = json.loads((tmp_path / "checkpoints" / "step-9" / "progress.json").read_text())
    assert progress["loss_scale"]["value"] < 2.0**20


class Scaled:
    """Ranks whose scale begins high, and grows after two steps."""

    def __init__(self, ranks: Any) -> None:
        self._ranks = ranks

    def run(self, processes: int, _: Any, job: JobSpec) -> None:
        self._ranks.run(processes, train_from, job, 2.0**24, 2)
