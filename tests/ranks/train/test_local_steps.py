"""Replicas that train apart: against a plain loop over copies, through checkpoints, and where all must agree."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.ranks.train import jobs
from tests.ranks.train.jobs import train_alone, train_ranks
from tests.ranks.train.test_parity import column, curve, weights
from tests.ranks.train.test_resume import assert_goes_on
from tests.unit.jobs.specs import training
from tests.unit.models.sections import section
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.initial import draw_weights
from understudy.recipe import Schedule
from understudy.train.optimizers import learning_rate

WAYS = [("ddp", 2, 2), pytest.param("hsdp", 4, 2, marks=pytest.mark.full)]
STEPS = 11
"""With meetings after 4, 8, and the last, which ends a shorter round."""


@pytest.mark.parametrize(("strategy", "processes", "replicas"), WAYS)
@pytest.mark.parametrize(("optimizer", "accumulate"), [("adamw", 1), ("sgd", 2)])
def test_it_is_a_plain_loop_over_copies(
    ranks: Any,
    tmp_path: Path,
    image_examples: Path,
    strategy: str,
    processes: int,
    replicas: int,
    optimizer: str,
    accumulate: int,
) -> None:
    """The third batch of an epoch is ragged: one replica has 8 examples of it, the other 5.

    AdamW makes steps of roundings where a gradient should be 0 (a key's bias), so weights are compared under SGD.
    """
    train = {"steps": STEPS, "strategy": strategy, "gradient_accumulation_steps": accumulate}
    train |= {"optimizer": {**jobs.TRAIN["optimizer"], "name": optimizer}}
    train |= {"diloco": {"every": 4, "learning_rate": 0.7, "momentum": 0.9}, "validate_every": 4}
    job = jobs.spec(tmp_path / "job", image_examples, jobs.VIT, processes, train=train)
    ranks.run(processes, train_ranks, job)
    settings, reference = training(job).train.model_dump(), tmp_path / "reference.safetensors"
    losses = ranks.run(1, by_hand, str(image_examples), settings, training(job).seed, replicas, str(reference))[0]
    np.testing.assert_allclose(column(curve(job), "loss"), losses, rtol=1e-6)
    expected = load_file(reference)
    for name, tensor in weights(job).items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6 if optimizer == "sgd" else 2e-4)


def by_hand(examples: str, train: dict[str, Any], seed: int, replicas: int, target: str) -> list[float]:
    """The mean loss of each step; the last weights go to a file."""
    facts = json.loads((Path(examples) / "examples.json").read_text())
    images = torch.from_numpy(np.load(Path(examples) / "train.images.npy"))
    labels = torch.from_numpy(np.load(Path(examples) / "train.labels.npy"))
    copies, inner = [], []
    for _ in range(replicas + 1):
        module = build_model(describe(section(jobs.VIT), facts, "model")).train()
        draw_weights(module.get_submodule("net"), seed)
        groups = [
            {"params": [weight for weight in module.parameters() if (weight.ndim > 1) is decays], "weight_decay": share}
            for decays, share in ((True, train["optimizer"]["weight_decay"]), (False, 0.0))
        ]
        copies.append(module)
        adamw = train["optimizer"]["name"] == "adamw"
        inner.append(torch.optim.AdamW(groups) if adamw else torch.optim.SGD(groups, momentum=0.9))
    *copies, synchronised = copies
    diloco = train["diloco"]
    outer = torch.optim.SGD(
        synchronised.parameters(), lr=diloco["learning_rate"], momentum=diloco["momentum"], nesterov=True
    )
    losses = []
    for step in range(train["steps"]):
        epoch, position = divmod(step, 3)
        order = np.random.default_rng([seed, epoch]).permutation(45)[16 * position : 16 * (position + 1)]
        turn = np.arange(len(order)) // (16 // (replicas * train["gradient_accumulation_steps"])) % replicas
        replica_batches = [order[turn == replica] for replica in range(replicas)]
        rate = learning_rate(step, train["steps"], train["optimizer"]["learning_rate"], Schedule(**train["schedule"]))
        total = 0.0
        for copy, optimizer, indices in zip(copies, inner, replica_batches, strict=False):
            loss = torch.nn.functional.cross_entropy(copy(images[indices]).logits, labels[indices], reduction="sum")
            loss = loss / len(order)
            optimizer.zero_grad()
            (loss * replicas).backward()
            torch.nn.utils.clip_grad_norm_(copy.parameters(), train["max_grad_norm"])
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            total += loss.item()
        losses.append(total)
        if (step + 1) % diloco["every"] == 0 or step + 1 == train["steps"]:
            for weight, *parts in zip(synchronised.parameters(), *(copy.parameters() for copy in copies), strict=True):
                weight.grad = sum(weight.detach() - part.detach() for part in parts) / replicas
            outer.step()
            for copy in copies:
                copy.load_state_dict(synchronised.state_dict())
    save_file({name.removeprefix("net."): tensor for name, tensor in synchronised.state_dict().items()}, target)
    return losses


@pytest.mark.parametrize(("strategy", "processes", "replicas"), WAYS)
def test_meeting_after_each_step_of_sgd_is_training_together(
    ranks: Any, tmp_path: Path, image_examples: Path, strategy: str, processes: int, replicas: int
) -> None:
    del replicas
    sgd = {**jobs.TRAIN["optimizer"], "name": "sgd", "learning_rate": 0.03}
    train: dict[str, Any] = {"optimizer": sgd, "max_grad_norm": None}
    alone = jobs.spec(tmp_path / "alone", image_examples, jobs.VIT, train=train)
    train |= {"strategy": strategy, "diloco": {"every": 1, "learning_rate": 1.0, "momentum": 0.0}}
    spread = jobs.spec(tmp_path / "spread", image_examples, jobs.VIT, processes, train=train)
    train_alone(ranks, alone)
    ranks.run(processes, train_ranks, spread)
    np.testing.assert_allclose(column(curve(spread), "loss"), column(curve(alone), "loss"), rtol=1e-5)
    for name, tensor in weights(spread).items():
        torch.testing.assert_close(tensor, weights(alone)[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("last", [pytest.param(4, marks=pytest.mark.full), 6])
@pytest.mark.parametrize(("strategy", "processes", "replicas"), WAYS)
def test_it_goes_on_bit_for_bit_between_meetings_too(
    ranks: Any, tmp_path: Path, image_examples: Path, strategy: str, processes: int, replicas: int, last: int
) -> None:
    del replicas
    train = {"strategy": strategy, "checkpoint_every": last, "diloco": {"every": 4}, "steps": last + 3}
    job = jobs.spec(tmp_path, image_examples, jobs.VIT, processes, train=train)
    assert_goes_on(ranks, processes, job, last)
