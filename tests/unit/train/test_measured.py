"""Whether models compute in the precision in which they will be measured is told before any training."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from tests.ranks.train import jobs
from tests.unit.jobs.specs import training as training_of
from understudy.data.loader import Examples, open_split
from understudy.errors import InputError
from understudy.models.build import build_model, tied_weights
from understudy.models.describe import describe
from understudy.models.facts import Description, read_facts
from understudy.models.files import save_model
from understudy.models.narrow import narrowed
from understudy.recipe import ArchitectureModel
from understudy.train.descriptions import description_of
from understudy.train.later_models import try_later_models


class Shifted(nn.Module):
    """A linear classifier of pixels to which a buffer is added."""

    def __init__(self, num_labels: int, pixels: int, kind: torch.dtype | None) -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(pixels, num_labels), kind
        self.register_buffer("shift", torch.ones(pixels))

    def forward(self, images: Tensor) -> Tensor:
        shift = self.shift if self.kind is None else self.shift.to(images.dtype)
        shifted: Tensor = self.linear(images.flatten(1) + shift)
        return shifted


def as_it_is(num_labels: int, image_size: int, num_channels: int) -> nn.Module:
    return Shifted(num_labels, num_channels * image_size**2, None)


def converted(num_labels: int, image_size: int, num_channels: int) -> nn.Module:
    return Shifted(num_labels, num_channels * image_size**2, torch.bfloat16)


def normalised(num_labels: int, image_size: int, num_channels: int) -> nn.Module:
    return nn.Sequential(
        nn.BatchNorm2d(num_channels), nn.Flatten(), nn.Linear(num_channels * image_size**2, num_labels)
    )


built: list[int] = []
"""Of each model with attention of another kind, how many labels it has."""


class Flexible(nn.Module):
    """Pixels attend to each other in a form that torch compiles (flex_attention)."""

    def __init__(self, num_labels: int, pixels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(pixels, num_labels)
        built.append(num_labels)

    def forward(self, images: Tensor) -> Tensor:
        heads = images.flatten(1)[:, None, :, None].expand(-1, -1, -1, 16)
        attended: Tensor = self.linear(flex_attention(heads, heads, heads)[:, 0, :, 0])
        return attended


def flexible(num_labels: int, image_size: int, num_channels: int) -> nn.Module:
    return Flexible(num_labels, num_channels * image_size**2)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_code_of_ones_own_runs_once_and_as_it_will(tmp_path: Path, image_examples: Path) -> None:
    spec = jobs.spec(tmp_path, image_examples, factory("flexible"), measured_in="bf16")
    built.clear()
    try_later_models(training_of(spec), open_split(image_examples, "train"), "cpu")
    assert len(built) == 1


def factory(name: str) -> dict[str, Any]:
    return {"factory": f"tests.unit.train.test_measured:{name}"}


XGLM = {
    "type": "xglm",
    "config": {"d_model": 16, "num_layers": 2, "attention_heads": 2, "ffn_dim": 32, "max_position_embeddings": 32},
}
"""Adds sines, which are a buffer."""
APERTUS = {
    "type": "apertus",
    "config": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 32,
    },
}
"""Has weights of a single number, which are known without memory."""
JETMOE = {
    "type": "jetmoe",
    "config": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "kv_channels": 8,
        "intermediate_size": 16,
        "num_local_experts": 4,
        "max_position_embeddings": 32,
    },
}
"""Looks at which expert each token goes to, so it does not run without memory."""
CONVNEXT = {"type": "convnext", "config": {"hidden_sizes": [8, 8], "depths": [1, 1], "num_stages": 2, "patch_size": 2}}
"""Looks at values while it is built."""


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("model", "later", "wrong"),
    [
        (factory("as_it_is"), {}, "teacher.model"),
        (jobs.VIT, {"student.model": factory("as_it_is")}, "student.model"),
        (jobs.VIT, {"student.model": factory("converted")}, None),
        (factory("normalised"), {"student.model": jobs.VIT}, None),
    ],
)
def test_a_model_that_cannot_be_measured_as_asked_is_not_trained(
    tmp_path: Path, image_examples: Path, precision: str, model: Any, later: dict[str, Any], wrong: str | None
) -> None:
    spec = jobs.spec(tmp_path, image_examples, model, later_models=later, measured_in=precision)
    job, split = training_of(spec), open_split(image_examples, "train")
    if precision == "fp32" or wrong is None:
        try_later_models(job, split, "cpu")
        return
    with pytest.raises(InputError, match=rf"^evaluate\.precision: bf16: {re.escape(wrong)}: .*buffers keep their type"):
        try_later_models(job, split, "cpu")


def computes(description: Description, split: Examples) -> bool:
    """Whether a real model in bf16 predicts the first example."""
    inputs, _ = split.batch(np.zeros(1, dtype=np.int64))
    try:
        with torch.no_grad():
            narrowed(build_model(description), torch.bfloat16).eval()(inputs)
    except RuntimeError:
        return False
    return True


KINDS: dict[str, dict[str, Any]] = {
    str(model["type"]): model for model in (jobs.GPT, jobs.LLAMA, jobs.BERT, XGLM, APERTUS, JETMOE, CONVNEXT, jobs.VIT)
}


@pytest.mark.parametrize("model", KINDS.values(), ids=KINDS)
def test_a_trial_without_memory_ends_as_a_real_model_does(
    tmp_path: Path, text_examples: Path, image_examples: Path, model: dict[str, Any]
) -> None:
    examples = image_examples if model in (CONVNEXT, jobs.VIT) else text_examples
    spec = jobs.spec(tmp_path, examples, model, measured_in="bf16")
    job, split = training_of(spec), open_split(examples, "train")
    assert computes(description_of(job), split) == (model != XGLM)
    if model != XGLM:
        try_later_models(job, split, "cpu")
        return
    with pytest.raises(InputError, match=r"bf16: teacher\.model: the model fails .*does not take bfloat16 and float32"):
        try_later_models(job, split, "cpu")


def test_a_teacher_that_was_not_trained_by_this_run_is_tried_before_its_student_is(
    tmp_path: Path, text_examples: Path
) -> None:
    facts = read_facts(text_examples)
    folder = tmp_path / "teacher"
    folder.mkdir()
    section = ArchitectureModel.model_validate(XGLM)
    description = describe(section, facts, "teacher.model")
    model = build_model(description)
    tied = tied_weights(model)
    save_model(folder, {name: tensor for name, tensor in model.state_dict().items() if name not in tied}, description)
    spec = jobs.spec(
        tmp_path / "job", text_examples, jobs.GPT, role="distill", teacher=str(folder), teacher_model=section
    )
    split = open_split(text_examples, "train")
    try_later_models(training_of(spec), split, "cpu")
    changed = replace(training_of(spec), measured_in="bf16")
    with pytest.raises(InputError, match=r"^evaluate\.precision: bf16: teacher\.model: "):
        try_later_models(changed, split, "cpu")
