"""Whether models compute in the precision in which they will be measured is told before any training."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.ranks.train import jobs
from tests.unit.jobs.specs import training as training_of
from understudy.agent.training import training_job
from understudy.data.loader import open_split
from understudy.errors import InputError
from understudy.train.models import try_others


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


def factory(name: str) -> dict[str, Any]:
    return {"factory": f"tests.unit.train.test_measured:{name}"}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("own", "later", "wrong"),
    [
        (factory("as_it_is"), {}, "teacher.model"),
        (jobs.VIT, {"student.model": factory("as_it_is")}, "student.model"),
        (jobs.VIT, {"student.model": factory("converted")}, None),
        (factory("normalised"), {"student.model": jobs.VIT}, None),
    ],
)
def test_a_model_that_cannot_be_measured_as_asked_is_not_trained(
    tmp_path: Path, image_examples: Path, precision: str, own: Any, later: dict[str, Any], wrong: str | None
) -> None:
    spec = jobs.spec(tmp_path, image_examples, own, others=later, measured_in=precision)
    job, split = training_job(spec, training_of(spec)), open_split(image_examples, "train")
    if precision == "fp32" or wrong is None:
        try_others(job, split)
        return
    with pytest.raises(InputError, match=rf"^evaluate\.precision: bf16: {re.escape(wrong)}: .*buffers keep their type"):
        try_others(job, split)
