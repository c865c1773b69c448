"""Every strategy trains what one process trains, and one process what a loop written by hand trains."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.jobs.specs import training
from tests.models.sections import section
from tests.train import jobs
from tests.train.jobs import train_ranks
from understudy.jobs.specification import JobSpec
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.facts import WEIGHTS
from understudy.recipe import Schedule
from understudy.train.optimizers import learning_rate

STRATEGIES = [("ddp", 2), ("fsdp", 2), ("hsdp", 4), ({"dp_replicate": 2, "dp_shard": 1}, 2)]
GPT = {**jobs.GPT, "config": {**jobs.GPT["config"], **jobs.NO_DROPOUT}}


def curve(job: JobSpec) -> list[dict[str, float]]:
    return json.loads((job.output / "history.json").read_text())


def column(points: list[dict[str, float]], name: str) -> Any:
    return np.array([point[name] for point in points])


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("kind", ["images", "text"])
@pytest.mark.parametrize(("strategy", "processes"), STRATEGIES)
def test_curve_equals_the_single_process(
    ranks: Any,
    tmp_path: Path,
    image_examples: Path,
    text_examples: Path,
    kind: str,
    strategy: Any,
    processes: int,
    accumulate: int,
) -> None:
    """45 and 44 examples in batches of 16: the last batch of an epoch is ragged, and one window is short."""
    examples, model = (image_examples, jobs.VIT) if kind == "images" else (text_examples, GPT)
    alone = jobs.spec(tmp_path / "alone", examples, model)
    spread = jobs.spec(
        tmp_path / "spread",
        examples,
        model,
        processes,
        train={"strategy": strategy, "gradient_accumulation_steps": accumulate},
    )
    ranks.run(1, train_ranks, alone)
    ranks.run(processes, train_ranks, spread)
    for name in ("loss", "grad_norm", "learning_rate"):
        np.testing.assert_allclose(column(curve(spread), name), column(curve(alone), name), rtol=1e-5, atol=1e-5)
    ours, theirs = load_file(spread.output / WEIGHTS), load_file(alone.output / WEIGHTS)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(
            tensor, theirs[name], rtol=1e-3, atol=2e-4, msg=lambda text, at=name: f"{at}: {text}"
        )


DISTILL = [{"type": "labels", "weight": 0.3}, {"type": "logits", "weight": 0.7, "temperature": 2.0}]


@pytest.mark.parametrize(("strategy", "processes"), STRATEGIES)
def test_distillation_equals_the_single_process(
    ranks: Any, tmp_path: Path, image_examples: Path, strategy: Any, processes: int
) -> None:
    teacher = jobs.spec(tmp_path / "teacher", image_examples, jobs.VIT)
    ranks.run(1, train_ranks, teacher)
    changes: dict[str, Any] = {"teacher": str(teacher.output), "objectives": DISTILL, "seed": 2}
    alone = jobs.spec(tmp_path / "alone", image_examples, jobs.VIT, **changes)
    spread = jobs.spec(
        tmp_path / "spread", image_examples, jobs.VIT, processes, train={"strategy": strategy}, **changes
    )
    ranks.run(1, train_ranks, alone)
    ranks.run(processes, train_ranks, spread)
    np.testing.assert_allclose(column(curve(spread), "loss"), column(curve(alone), "loss"), rtol=1e-5, atol=1e-5)


def test_single_process_equals_a_loop_written_by_hand(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    job = jobs.spec(tmp_path / "job", image_examples, jobs.VIT)
    ranks.run(1, train_ranks, job)
    trained = training(job)
    expected = ranks.run(1, by_hand, str(image_examples), jobs.VIT, trained.train.model_dump(), trained.seed)[0]
    np.testing.assert_allclose(column(curve(job), "loss"), expected, rtol=1e-6)


def by_hand(examples: str, model: dict[str, Any], train: dict[str, Any], seed: int) -> list[float]:
    facts = json.loads((Path(examples) / "examples.json").read_text())
    images = torch.from_numpy(np.load(Path(examples) / "train.images.npy"))
    labels = torch.from_numpy(np.load(Path(examples) / "train.labels.npy"))
    torch.manual_seed(seed)
    module = build_model(describe(section(model), facts, "model")).train()
    settings = train["optimizer"]
    matrices = [weight for weight in module.parameters() if weight.ndim > 1]
    vectors = [weight for weight in module.parameters() if weight.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": settings["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}],
        foreach=False,
    )
    losses = []
    for step in range(train["steps"]):
        epoch, place = divmod(step, 3)
        order = np.random.default_rng([seed, epoch]).permutation(45)[16 * place : 16 * (place + 1)]
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, train["steps"], settings["learning_rate"], Schedule(**train["schedule"]))
        loss = torch.nn.functional.cross_entropy(module(images[order]).logits, labels[order])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), train["max_grad_norm"])
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("later", "processes"), [("single", 1), ("ddp", 2), ("hsdp", 4)])
def test_a_checkpoint_loads_onto_other_degrees(
    ranks: Any, tmp_path: Path, image_examples: Path, later: str, processes: int
) -> None:
    whole = jobs.spec(tmp_path / "whole", image_examples, jobs.VIT)
    ranks.run(1, train_ranks, whole)
    first = jobs.spec(tmp_path / "job", image_examples, jobs.VIT, 2, train={"strategy": "fsdp", "checkpoint_every": 4})
    ranks.run(2, train_ranks, first)
    (tmp_path / "job" / "checkpoints" / "step-9").rename(tmp_path / "job" / "gone")
    second = jobs.spec(tmp_path / "job", image_examples, jobs.VIT, processes, train={"strategy": later})
    ranks.run(processes, train_ranks, second)
    np.testing.assert_allclose(column(curve(second), "loss"), column(curve(whole), "loss"), rtol=1e-5, atol=1e-5)


def test_bf16_stays_near_fp32(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    full = jobs.spec(tmp_path / "fp32", image_examples, jobs.VIT)
    half = jobs.spec(tmp_path / "bf16", image_examples, jobs.VIT, train={"precision": "bf16"})
    sharded = jobs.spec(tmp_path / "fsdp", image_examples, jobs.VIT, 2, train={"precision": "bf16", "strategy": "fsdp"})
    ranks.run(1, train_ranks, full)
    ranks.run(1, train_ranks, half)
    ranks.run(2, train_ranks, sharded)
    for job in (half, sharded):
        losses = column(curve(job), "loss")
        np.testing.assert_allclose(losses, column(curve(full), "loss"), rtol=0.02)
        assert not np.array_equal(losses, column(curve(full), "loss"))
