"""A job that goes on from a checkpoint ends with the bits of one that was never interrupted, dropout and all."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_ranks
from tests.unit.jobs.specs import training
from understudy.jobs.specification import JobSpec

DROPOUT = {**jobs.VIT["config"], "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
LAYOUTS = [("single", 1, 1), ("ddp", 2, 2), ("fsdp", 2, 1), ("hsdp", 4, 1)]
RARER = [
    ("fsdp", 4, 2),
    ("single", 1, 2),
    ("ddp", 2, 1),
    ("ddp", 4, 1),
    ("ddp", 4, 2),
    ("fsdp", 2, 2),
    ("fsdp", 4, 1),
    ("hsdp", 4, 2),
]


RESNET = {
    "type": "resnet",
    "config": {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "layer_type": "basic"},
}
DINO = {
    "type": "dinov2",
    "config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_ratio": 2, "patch_size": 4},
}


def files(job: JobSpec) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (*job.output.glob("*.safetensors"), job.output / "history.json")}


def assert_goes_on(ranks: Any, processes: int, job: JobSpec, last: int = 6) -> None:
    """Train, take the last checkpoint away, train again from the one before, which is that of step `last`."""
    ranks.run(processes, train_ranks, job)
    unbroken = files(job)
    job.output.joinpath("model-00001-of-00004.safetensors").write_bytes(b"of another attempt")
    checkpoints = Path(job.folder) / "checkpoints"
    assert {path.name for path in checkpoints.glob("step-*")} == {f"step-{last}", f"step-{training(job).train.steps}"}
    shutil.rmtree(checkpoints / f"step-{training(job).train.steps}")
    ranks.run(processes, train_ranks, job)
    assert files(job) == unbroken


@pytest.mark.parametrize(("strategy", "processes", "accumulate"), tiers(LAYOUTS, RARER))
def test_a_job_goes_on_bit_for_bit(
    ranks: Any, tmp_path: Path, image_examples: Path, strategy: str, processes: int, accumulate: int
) -> None:
    train = {"strategy": strategy, "gradient_accumulation_steps": accumulate, "checkpoint_every": 3}
    job = jobs.spec(tmp_path, image_examples, {**jobs.VIT, "config": DROPOUT}, processes, train=train)
    assert_goes_on(ranks, processes, job)


def test_a_job_with_changed_and_mixed_images_goes_on_bit_for_bit(
    ranks: Any, tmp_path: Path, image_examples: Path
) -> None:
    augment = {"flip": True, "rand_augment": {"operations": 2, "magnitude": 5}, "mixup": 0.4}
    job = jobs.spec(tmp_path, image_examples, jobs.VIT, train={"augment": augment, "checkpoint_every": 3})
    assert_goes_on(ranks, 1, job)


def test_a_job_in_fp8_goes_on_bit_for_bit(ranks: Any, tmp_path: Path, text_examples: Path) -> None:
    train = {"strategy": "fsdp", "precision": "fp8", "checkpoint_every": 3}
    assert_goes_on(ranks, 2, jobs.spec(tmp_path, text_examples, jobs.LLAMA, 2, train=train))


@pytest.mark.parametrize(("strategy", "processes"), tiers([("fsdp", 2)], [("single", 1), ("ddp", 2)]))
@pytest.mark.parametrize("model", [RESNET, DINO], ids=["running means", "a weight that gets no gradient"])
def test_a_job_of_another_kind_of_model_goes_on_bit_for_bit(
    ranks: Any, tmp_path: Path, image_examples: Path, model: dict[str, Any], strategy: str, processes: int
) -> None:
    train = {"strategy": strategy, "checkpoint_every": 3}
    job = jobs.spec(tmp_path, image_examples, model, processes, train=train)
    assert_goes_on(ranks, processes, job)
