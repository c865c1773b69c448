"""Validation during a training: the same numbers under every strategy, the best model kept, an early end."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn import functional

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_ranks
from understudy.data.loader import TextExamples, open_split
from understudy.errors import InputError, UnderstudyError
from understudy.jobs.specification import JobSpec
from understudy.models.facts import WEIGHTS, read_description
from understudy.models.files import load_model
from understudy.train.validated import best_step
from understudy.train.validation import Validation

VALIDATED: dict[str, Any] = {"validate_every": 2, "steps": 9}
FAST: dict[str, Any] = {"optimizer": {**jobs.TRAIN["optimizer"], "learning_rate": 0.03}}


@pytest.fixture(scope="module")
def contrary(tmp_path_factory: pytest.TempPathFactory, text_examples: Path) -> Path:
    """Examples whose validation split goes backwards: training makes a model worse there."""
    folder = tmp_path_factory.mktemp("contrary") / "examples"
    shutil.copytree(text_examples, folder)
    np.save(folder / "validation.tokens.npy", (-5 * np.arange(130) % 50).astype(np.uint16))
    return folder


def curve(job: JobSpec) -> list[dict[str, float]]:
    return json.loads((job.output / "history.json").read_text())


def measured(job: JobSpec, name: str = "validation_loss") -> dict[int, float]:
    return {int(point["step"]): point[name] for point in curve(job) if name in point}


@pytest.mark.parametrize(
    ("strategy", "processes"),
    tiers([("ddp", 2), ("tp", 2)], [("fsdp", 2), ("zero1", 2), ({"dp_shard": 2, "tp": 2}, 4)]),
)
def test_what_is_measured_is_the_same_under_every_strategy(
    ranks: Any, tmp_path: Path, text_examples: Path, strategy: Any, processes: int
) -> None:
    alone = jobs.spec(tmp_path / "alone", text_examples, jobs.LLAMA, train=VALIDATED)
    plain = jobs.spec(tmp_path / "plain", text_examples, jobs.LLAMA)
    train = {**VALIDATED, "strategy": strategy, "gradient_accumulation_steps": 2}
    spread = jobs.spec(tmp_path / "spread", text_examples, jobs.LLAMA, processes, train=train)
    for job, count in ((alone, 1), (plain, 1), (spread, processes)):
        ranks.run(count, train_ranks, job)
    assert list(measured(alone)) == list(measured(spread)) == [2, 4, 6, 8, 9]
    for name in ("validation_loss", "validation_accuracy"):
        losses, expected = measured(spread, name), measured(alone, name)
        np.testing.assert_allclose(list(losses.values()), list(expected.values()), rtol=1e-5)
    assert [point["loss"] for point in curve(alone)] == [point["loss"] for point in curve(plain)]


def test_it_is_what_the_finished_model_loses_by_hand(ranks: Any, tmp_path: Path, text_examples: Path) -> None:
    job = jobs.spec(tmp_path, text_examples, jobs.LLAMA, train=VALIDATED)
    ranks.run(1, train_ranks, job)
    model = load_model(job.output, read_description(job.output), torch.device("cpu"))
    split = open_split(text_examples, "validation")
    assert isinstance(split, TextExamples)
    inputs, labels = split.batch(np.arange(len(split)))
    with torch.no_grad():
        logits = model(inputs).logits
    assert measured(job)[9] == pytest.approx(functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).item())
    right = (logits.argmax(-1) == labels)[labels >= 0].float().mean().item()
    assert measured(job, "validation_accuracy")[9] == pytest.approx(right)


@pytest.mark.parametrize(("strategy", "processes"), [("single", 1), ("fsdp", 2), ("ddp", 2)])
def test_the_best_model_is_kept(ranks: Any, tmp_path: Path, contrary: Path, strategy: str, processes: int) -> None:
    train = {**VALIDATED, "steps": 31, "strategy": strategy, **FAST, "keep_best": True}
    job = jobs.spec(tmp_path / "job", contrary, jobs.LLAMA, processes, train=train)
    ranks.run(processes, train_ranks, job)
    best = min(measured(job), key=lambda step: measured(job)[step])
    assert best < 31
    until = {"steps": 31, **FAST}
    last = jobs.spec(tmp_path / "last", contrary, jobs.LLAMA, train=until)
    ranks.run(1, train_ranks, last)
    ours, theirs = load_file(job.output / WEIGHTS), load_file(last.output / WEIGHTS)
    assert not all(torch.allclose(ours[name], theirs[name]) for name in ours)
    model = load_model(job.output, read_description(job.output), torch.device("cpu"))
    split = open_split(contrary, "validation")
    inputs, labels = split.batch(np.arange(len(split)))
    with torch.no_grad():
        loss = functional.cross_entropy(model(inputs).logits.flatten(0, 1), labels.flatten()).item()
    assert loss == pytest.approx(measured(job)[best], rel=1e-4)


def test_a_training_ends_when_it_gets_no_better(ranks: Any, tmp_path: Path, contrary: Path) -> None:
    train = {"validate_every": 1, "steps": 40, **FAST, "patience": 2, "keep_best": True}
    job = jobs.spec(tmp_path / "job", contrary, jobs.LLAMA, train=train)
    ranks.run(1, train_ranks, job)
    steps = measured(job)
    best = min(steps, key=lambda step: steps[step])
    assert curve(job)[-1]["step"] == best + 2 < 40
    before = (job.output / WEIGHTS).read_bytes()
    ranks.run(1, train_ranks, job)  # killed between the last checkpoint and the files of the model
    assert (job.output / WEIGHTS).read_bytes() == before
    assert curve(job)[-1]["step"] == best + 2


def test_a_training_that_resumes_validates_as_one_that_never_stopped(
    ranks: Any, tmp_path: Path, text_examples: Path
) -> None:
    train = {**VALIDATED, "keep_best": True, "checkpoint_every": 3}
    uninterrupted = jobs.spec(tmp_path / "whole", text_examples, jobs.LLAMA, train=train)
    ranks.run(1, train_ranks, uninterrupted)
    job = jobs.spec(tmp_path / "job", text_examples, jobs.LLAMA, train=train)
    ranks.run(1, train_ranks, job)
    (tmp_path / "job" / "checkpoints" / "step-9").rename(tmp_path / "job" / "gone")
    ranks.run(1, train_ranks, job)
    assert curve(job) == curve(uninterrupted)
    assert (job.output / WEIGHTS).read_bytes() == (uninterrupted.output / WEIGHTS).read_bytes()


def test_a_best_model_that_is_damaged_is_not_delivered(ranks: Any, tmp_path: Path, contrary: Path) -> None:
    job = jobs.spec(tmp_path, contrary, jobs.LLAMA, train={**VALIDATED, **FAST, "keep_best": True})
    ranks.run(1, train_ranks, job)
    [part] = (tmp_path / "checkpoints").glob("best-*/*.distcp")
    part.write_bytes(part.read_bytes()[:-1])
    (error,) = ranks.run(1, refusal, job, UnderstudyError)
    assert "the weights of the best step" in error


def test_data_without_the_split_is_refused(ranks: Any, tmp_path: Path, text_examples: Path) -> None:
    copy = tmp_path / "examples"
    shutil.copytree(text_examples, copy)
    np.save(copy / "validation.tokens.npy", np.zeros(0, dtype=np.uint16))
    job = jobs.spec(tmp_path / "job", copy, jobs.LLAMA, train=VALIDATED)
    (error,) = ranks.run(1, refusal, job)
    assert "train.validate_every: the data has no validation split; give it a share, data.validation" in error


def refusal(job: JobSpec, kind: type[UnderstudyError] = InputError) -> str:
    with pytest.raises(kind) as caught:
        train_ranks(job)
    torch.distributed.destroy_process_group()
    return str(caught.value)


@given(st.lists(st.floats(0, 9), min_size=1, max_size=12), st.integers(1, 4))
def test_the_best_is_the_first_of_the_smallest_and_patience_counts_from_it(losses: list[float], patience: int) -> None:
    history: list[dict[str, float]] = [
        {"step": place + 1, "validation_loss": loss} for place, loss in enumerate(losses)
    ]
    history.append({"step": len(losses) + 1, "loss": 0.0})
    validation = Validation(None, 1, 1, keep_best=True, patience=patience)  # type: ignore[arg-type]
    best = losses.index(min(losses)) + 1
    assert best_step(history) == best
    assert validation.is_over(history) is (len(losses) - best >= patience)
