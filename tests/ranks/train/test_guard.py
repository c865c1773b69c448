"""A guard: which steps it skips, what such a step leaves as it was, when it goes back, and that all ranks agree."""

import itertools
import json
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_ranks
from tests.ranks.train.test_parity import weights
from tests.ranks.train.test_resume import RESNET, files
from understudy.errors import Stopped, UnderstudyError
from understudy.jobs.specification import JobSpec

STEPS = {"steps": 24, "checkpoint_every": 4, "guard": {"spike": 2.0, "rollback_after": 3}}
HURT: Mapping[int, float] = {5: math.nan, 14: 5.0}
"""Factors of losses by step, counted from 0 in the order of the data."""
ROW: Mapping[int, float] = {5: math.nan, 14: 5.0, 15: math.inf, 16: 5.0}
WAYS: list[tuple[Any, int, int | None]] = [("fsdp", 2, None), ({"pp": 2, "dp_shard": 2}, 4, 1)]
RARER: list[tuple[Any, int, int | None]] = [("ddp", 2, None), ("zero2", 2, None), ({"dp_shard": 2, "tp": 2}, 4, None)]
RARER += [("ddp", 2, 1), ("fsdp", 2, 1), ({"dp_shard": 2, "tp": 2}, 4, 1), ({"pp": 2, "dp_shard": 2}, 4, None)]
RARER += [({"dp_shard": 2, "cp": 2}, 4, 1)]
ALL = [*WAYS, *(pytest.param(*case, marks=pytest.mark.full) for case in RARER)]
FOUR_HEADS = {**jobs.LLAMA, "config": {**jobs.LLAMA["config"], "num_key_value_heads": 4}}


@contextmanager
def hurt(factors: Mapping[int, float], rank: int | None) -> Iterator[None]:
    """Training whose losses and gradients are multiplied by a factor, on one rank or on all of them."""
    from understudy.data.loader import Order
    from understudy.train.learning import Learner, Whole
    from understudy.train.pipelined import Pipelined

    read, position = Order.batch, [0]

    def batch(order: Order, step: int) -> Any:
        position[0] = step
        return read(order, step)

    def times(gradients: Any) -> Any:
        def changed(learner: Any, *args: Any) -> Any:
            loss, factor = gradients(learner, *args), factors.get(position[0], 1.0)
            if factor == 1.0 or rank not in (None, torch.distributed.get_rank()):
                return loss
            model = learner._held if isinstance(learner, Pipelined) else learner._model
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)
            return loss * factor

        return changed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Order, "batch", batch)
        kinds: list[type[Learner]] = [Whole, Pipelined]
        for kind in kinds:
            patch.setattr(kind, "gradients", times(kind.gradients))
        yield


def train_hurt(job: JobSpec, factors: Mapping[int, float], rank: int | None = None) -> None:
    with hurt(factors, rank):
        train_ranks(job)


def curve(job: JobSpec) -> list[dict[str, Any]]:
    return json.loads((job.output / "history.json").read_text())


def skipped(job: JobSpec) -> dict[int, int]:
    return {point["step"]: point["skipped"] for point in curve(job) if "skipped" in point}


def test_a_skipped_step_changes_nothing_and_is_marked(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    """The same as a training by hand that leaves these steps out: the optimiser's own count stays behind."""
    job = jobs.spec(tmp_path / "job", image_examples, jobs.VIT, train={**STEPS, "average": 0.9})
    ranks.run(1, train_hurt, job, HURT)
    assert skipped(job) == {6: 1, 15: 2}
    points = curve(job)
    assert [point["step"] for point in points] == list(range(1, 25))
    assert points[5]["loss"] is None
    assert points[14]["loss"] > 2 * points[13]["loss"]
    by_hand = jobs.spec(tmp_path / "hand", image_examples, jobs.VIT, train={**STEPS, "average": 0.9, "guard": None})
    ranks.run(1, train_without, by_hand, list(HURT))
    for name, tensor in weights(job).items():
        assert torch.equal(tensor, weights(by_hand)[name]), name


def train_without(job: JobSpec, steps: list[int]) -> None:
    """Neither optimiser nor averages see some steps, counted from 0."""
    from understudy.train.averages import Averages
    from understudy.train.optimizers import ShardedAdamW

    step, update, step_index = ShardedAdamW.step, Averages.update, [-2]  # the first one makes the optimiser's state

    def counted(optimizer: ShardedAdamW) -> None:
        step_index[0] += 1
        if step_index[0] not in steps:
            step(optimizer)

    def count_update(averages: Averages, number: int) -> None:
        if number not in steps:
            update(averages, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardedAdamW, "step", counted)
        patch.setattr(Averages, "update", count_update)
        train_ranks(job)


def test_without_a_reason_it_changes_no_bit(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    guarded = jobs.spec(tmp_path / "guarded", image_examples, jobs.VIT, train=STEPS)
    plain = jobs.spec(tmp_path / "plain", image_examples, jobs.VIT, train={**STEPS, "guard": None})
    for job in (guarded, plain):
        ranks.run(1, train_ranks, job)
    assert files(guarded) == files(plain)


@pytest.mark.parametrize(("strategy", "processes", "rank"), ALL)
def test_every_strategy_skips_and_goes_back_alike(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int, rank: int | None
) -> None:
    """A NaN on one rank alone is skipped by all."""
    factors = ROW if rank is None else dict.fromkeys(ROW, math.nan)
    train = {**STEPS, "gradient_accumulation_steps": 2}
    alone = jobs.spec(tmp_path / "alone", text_examples, FOUR_HEADS, train=train)
    spread = jobs.spec(tmp_path / "spread", text_examples, FOUR_HEADS, processes, train={**train, "strategy": strategy})
    ranks.run(1, train_hurt, alone, factors)
    ranks.run(processes, train_hurt, spread, factors, rank)
    assert skipped(spread) == skipped(alone) == {6: 1}
    assert [point["step"] for point in curve(spread) if point.get("passed_over") == 5] == [13]
    for name in ("loss", "grad_norm"):
        losses, expected = ([p[name] for p in curve(job) if "skipped" not in p] for job in (spread, alone))
        np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)
    for name, tensor in weights(spread).items():
        torch.testing.assert_close(tensor, weights(alone)[name], rtol=1e-3, atol=2e-4)


def test_it_goes_on_after_the_batches_that_it_passes_over(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    job = jobs.spec(tmp_path / "job", image_examples, jobs.VIT, train=STEPS)
    ranks.run(1, train_hurt, job, ROW)
    by_hand = jobs.spec(tmp_path / "hand", image_examples, jobs.VIT, train={**STEPS, "guard": None})
    ranks.run(1, train_further_on, by_hand, 12, 5, [5])
    for name, tensor in weights(job).items():
        assert torch.equal(tensor, weights(by_hand)[name]), name


def train_further_on(job: JobSpec, start: int, passed: int, left_out: list[int]) -> None:
    """From a step on, counted from 0, with the batches of so many steps later."""
    from understudy.data.loader import Order

    read = Order.batch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Order, "batch", lambda order, step: read(order, step + passed if step >= start else step))
        train_without(job, left_out)


KILLED = [("single", 1, 12)]
RARELY = [("single", 1, checkpoint) for checkpoint in (0, 8, 16)] + [
    ("fsdp", 2, checkpoint) for checkpoint in (0, 12, 16, 20)
]


@pytest.mark.parametrize(
    ("strategy", "processes", "checkpoint"),
    [*KILLED, *(pytest.param(*case, marks=pytest.mark.full) for case in RARELY)],
)
def test_a_killed_training_skips_and_goes_back_as_one_that_never_stopped(
    ranks: Any, tmp_path: Path, image_examples: Path, strategy: str, processes: int, checkpoint: int
) -> None:
    """Killed before anything was skipped, before the checkpoint that it goes back to, just after it, and later."""
    job = jobs.spec(tmp_path, image_examples, jobs.VIT, processes, train={**STEPS, "strategy": strategy})
    ranks.run(processes, train_hurt, job, ROW)
    unbroken = files(job)
    shutil.rmtree(job.output)
    shutil.rmtree(tmp_path / "checkpoints")
    ranks.run(processes, train_until, job, ROW, checkpoint)
    ranks.run(processes, train_hurt, job, ROW)
    assert files(job) == unbroken


def train_until(job: JobSpec, factors: Mapping[int, float], step: int) -> None:
    """Gone once the checkpoint of this step is in place."""
    from understudy.parallel.checkpoint import Checkpoints

    save = Checkpoints.save

    def last(checkpoints: Checkpoints, saved_step: int, progress: str) -> None:
        save(checkpoints, saved_step, progress)
        if saved_step == step:
            checkpoints.finish()
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", last)
        with pytest.raises(KeyboardInterrupt):
            train_hurt(job, factors)
    torch.distributed.destroy_process_group()


def test_where_going_back_does_not_help_it_fails(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    helped = jobs.spec(tmp_path / "helped", image_examples, jobs.VIT, train=STEPS)
    ranks.run(1, train_hurt, helped, dict.fromkeys(range(14, 23), math.nan))
    assert [point["passed_over"] for point in curve(helped) if "passed_over" in point] == [11]
    job = jobs.spec(tmp_path / "job", image_examples, jobs.VIT, train=STEPS)
    error = ranks.run(1, failure, job, dict.fromkeys(range(14, 26), math.nan))[0]
    assert error.startswith(
        "at step 15, 3 in a row were skipped (its loss is nan), and training went back to step 12 3 times already."
    )


def failure(job: JobSpec, factors: Mapping[int, float]) -> str:
    with pytest.raises(UnderstudyError) as caught:
        train_hurt(job, factors)
    torch.distributed.destroy_process_group()
    return str(caught.value)


def test_a_training_that_is_stopped_while_it_skips_goes_on_from_before(
    ranks: Any, tmp_path: Path, image_examples: Path
) -> None:
    uninterrupted = jobs.spec(tmp_path / "whole", image_examples, jobs.VIT, train=STEPS)
    ranks.run(1, train_hurt, uninterrupted, ROW)
    job = jobs.spec(tmp_path / "job", image_examples, jobs.VIT, train=STEPS)
    assert ranks.run(1, stopped, job, ROW, 16) == [
        "stopped at step 16 of 24, at a checkpoint of step 12, since steps are being skipped"
    ]
    ranks.run(1, train_hurt, job, ROW)
    assert files(job) == files(uninterrupted)


def stopped(job: JobSpec, factors: Mapping[int, float], step: int) -> str:
    """Asked to stop after so many steps."""
    from understudy.train.curve import Recent

    flush = Recent.flush
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recent, "is_due", lambda _: True)
        patch.setattr(Recent, "flush", lambda recent, steps: flush(recent, steps) or steps == step)
        with pytest.raises(Stopped) as caught:
            train_hurt(job, factors)
    torch.distributed.destroy_process_group()
    return str(caught.value)


def test_the_best_weights_are_there_after_going_back(ranks: Any, tmp_path: Path, text_examples: Path) -> None:
    """The best so far is that of step 15, between two checkpoints: training does not go back behind it."""
    train = {**STEPS, "validate_every": 1, "keep_best": True, "checkpoint_every": 12}
    job = jobs.spec(tmp_path, text_examples, jobs.LLAMA, train=train)
    ranks.run(1, train_validated, job, dict.fromkeys(range(15, 18), math.nan), {10: 1.0, 15: 0.5})
    points = curve(job)
    assert [point["step"] for point in points if "passed_over" in point] == [16]
    assert min((point["validation_loss"], point["step"]) for point in points)[1] == 15


def train_validated(job: JobSpec, factors: Mapping[int, float], losses: Mapping[int, float]) -> None:
    """The n-th validation finds a loss of its own, or a large one."""
    from understudy.train.validation import Measured, Validation

    number = itertools.count(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Validation, "measure", lambda *_: Measured(losses.get(next(number), 2.0), 0.5))
        train_hurt(job, factors)


def test_running_means_forget_what_was_skipped(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    job = jobs.spec(tmp_path, image_examples, RESNET, train=STEPS)
    ranks.run(1, train_on_no_numbers, job, 5)
    assert skipped(job) == {6: 1}
    assert all(tensor.isfinite().all() for tensor in weights(job).values() if tensor.is_floating_point())


def train_on_no_numbers(job: JobSpec, step: int) -> None:
    """The images of a step, counted from 0, are NaN."""
    from understudy.train import loop
    from understudy.train.learning import Part

    part = loop._part

    def recorded_part(training: Any, position: int, *args: Any) -> Part:
        batch_part = part(training, position, *args)
        return batch_part._replace(inputs=batch_part.inputs * math.nan) if position == step else batch_part

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_part", recorded_part)
        train_ranks(job)


def test_a_spike_is_told_by_the_median_of_the_losses_that_were_taken(ranks: Any) -> None:
    random = np.random.default_rng(0)
    losses = (random.lognormal(0.0, 0.5, 200) * np.linspace(3, 1, 200)).tolist()
    accepted: list[float] = []
    expected = []
    for loss in losses:
        expected.append(len(accepted) < 10 or loss <= 2.0 * float(np.median(accepted[-50:])))
        accepted += [loss] if expected[-1] else []
    assert 0 < expected.count(False) < 60
    assert ranks.run(1, decisions, losses, 2.0) == [expected]
    assert ranks.run(1, decisions, losses, None) == [[True] * 200]


def decisions(losses: list[float], spike: float | None) -> list[bool]:
    from understudy.recipe import Guard as Settings
    from understudy.train.guard import Guard

    torch.distributed.init_process_group("gloo")
    guard = Guard(Settings(spike=spike), copies=1)
    found = [guard.allows(step, torch.tensor(loss), torch.tensor(1.0)) for step, loss in enumerate(losses, 1)]
    torch.distributed.destroy_process_group()
    return found
