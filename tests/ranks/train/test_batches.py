"""Parts of batches: empty ones count nothing, and one example alone is told before a training that cannot use it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.ranks.train import jobs
from tests.ranks.train.jobs import tiers, train_ranks
from tests.ranks.train.test_resume import RESNET
from tests.unit.jobs.specs import training as training_of
from understudy.data.loader import Order, open_split
from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.models.describe import describe
from understudy.models.facts import read_facts
from understudy.recipe import Degrees, FactoryModel, Model, Train
from understudy.recipe.models import ArchitectureModel
from understudy.train.batches import check_batches, part_sizes
from understudy.train.later_models import try_later_models

MEAN, STD = 0.4, 0.2
"""Of the examples, by their description."""


def first_norm(num_labels: int, num_channels: int, image_size: int) -> nn.Module:
    """BatchNorm gets the images themselves: its statistics follow from the data alone."""
    return nn.Sequential(
        nn.BatchNorm2d(num_channels), nn.Flatten(), nn.Linear(num_channels * image_size**2, num_labels)
    )


def vectors(num_labels: int, num_channels: int, image_size: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(num_channels * image_size**2, 4), nn.BatchNorm1d(4), nn.Linear(4, num_labels)
    )


def layers(num_labels: int, num_channels: int, image_size: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(num_channels * image_size**2, 4), nn.LayerNorm(4), nn.Linear(4, num_labels)
    )


class Blocks(nn.Module):
    """Blocks of one shape, as a pipeline wants them, each with running means."""

    def __init__(self, num_labels: int, num_channels: int, image_size: int) -> None:
        super().__init__()
        self.stem = nn.Linear(num_channels * image_size**2, 8)
        blocks = [nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()) for _ in range(2)]
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(8, num_labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        hidden = self.stem(pixel_values.flatten(1))
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(hidden)
        return logits


def factory(name: str) -> dict[str, Any]:
    return {"factory": f"tests.ranks.train.test_batches:{name}"}


def nonempty_parts(order: Order, world: int, rank: int, parts: int, steps: int) -> list[Any]:
    """Examples of each part that one rank reads, by arithmetic of our own: the batch cut into world x parts."""
    width = order.batch_size // (world * parts)
    own_parts = []
    for step in range(steps):
        batch = list(order.batch(step))
        cut = [batch[start : start + width] for start in range(0, order.batch_size, width)]
        own_parts += [part for number, part in enumerate(cut) if number % world == rank and part]
    return own_parts


def running(examples: Path, parts: list[Any]) -> tuple[float, float]:
    """Mean and variance that BatchNorm2d keeps of these parts, by its definition."""
    images = np.load(examples / "train.images.npy").astype(np.float64) / 255
    mean, variance = 0.0, 1.0
    for part in parts:
        pixels = (images[part] - MEAN) / STD
        mean = 0.9 * mean + 0.1 * pixels.mean()
        variance = 0.9 * variance + 0.1 * pixels.var(ddof=1)
    return mean, variance


WAYS: list[tuple[Any, int, int, int]] = [("single", 1, 32, 8), ("ddp", 2, 32, 4)]
RARER: list[tuple[Any, int, int, int]] = [("fsdp", 2, 32, 4), ("ddp", 4, 32, 2), ("single", 1, 22, 11)]


@pytest.mark.parametrize(("strategy", "processes", "size", "parts"), tiers(WAYS, RARER))
def test_parts_that_count_nothing_do_not_move_running_means(
    ranks: Any, tmp_path: Path, image_examples: Path, strategy: Any, processes: int, size: int, parts: int
) -> None:
    """45 images: the second batch of 32 has 13, so that a rank's last parts are empty."""
    train = {"strategy": strategy, "batch_size": size, "gradient_accumulation_steps": parts}
    job = jobs.spec(tmp_path, image_examples, factory("first_norm"), processes, train=train)
    ranks.run(processes, train_ranks, job)
    weights = load_weights(job)
    read_parts = nonempty_parts(Order(45, size, 1), processes, 0, parts, 9)
    mean, variance = running(image_examples, read_parts)
    assert weights["0.num_batches_tracked"].item() == len(read_parts)
    assert weights["0.running_mean"].item() == pytest.approx(mean, rel=1e-4)
    assert weights["0.running_var"].item() == pytest.approx(variance, rel=1e-4)


def test_nor_do_they_in_a_pipeline(ranks: Any, tmp_path: Path, image_examples: Path) -> None:
    """The last batch of 20 has 5 images: one full micro-batch, and three of nothing."""
    train = {"strategy": {"pp": 2}, "batch_size": 20, "gradient_accumulation_steps": 4}
    job = jobs.spec(tmp_path, image_examples, factory("Blocks"), 2, train=train)
    ranks.run(2, train_ranks, job)
    weights = load_weights(job)
    assert [weights[f"blocks.{block}.1.num_batches_tracked"].item() for block in (0, 1)] == [3 * (4 + 4 + 1)] * 2


def load_weights(job: JobSpec) -> dict[str, Tensor]:
    return {name: tensor for path in job.output.glob("*.safetensors") for name, tensor in load_file(path).items()}


@given(
    examples=st.integers(1, 60),
    width=st.integers(1, 6),
    readers=st.integers(1, 3),
    parts=st.integers(1, 4),
    steps=st.integers(1, 40),
)
def test_sizes_of_parts_are_those_that_are_read(
    examples: int, width: int, readers: int, parts: int, steps: int
) -> None:
    order = Order(examples, width * readers * parts, seed=3)
    read = [len(part) for rank in range(readers) for part in nonempty_parts(order, readers, rank, parts, steps)]
    assert part_sizes(order, readers, parts, steps) == set(read)


def checked(examples: Path, model: Model, degrees: Degrees, **train: Any) -> None:
    settings = Train.model_validate({**jobs.TRAIN, "steps": None, "epochs": 1, **train})
    description = describe(model, read_facts(examples), "teacher.model")
    check_batches(description, open_split(examples, "train"), settings, degrees, "cpu", "teacher")


ONE, TWO = Degrees(), Degrees(dp_replicate=2)
NET = ArchitectureModel.model_validate(RESNET)
VECTORS, PIXELS, LAYERS = (FactoryModel.model_validate(factory(name)) for name in ("vectors", "first_norm", "layers"))


@pytest.mark.parametrize(
    ("model", "degrees", "train", "sum_"),
    [
        (VECTORS, ONE, {"batch_size": 11}, "45 = 4 x 11 + 1"),
        (VECTORS, ONE, {"batch_size": 10, "gradient_accumulation_steps": 10}, "10 micro-batches"),
        (VECTORS, ONE, {"batch_size": 32, "gradient_accumulation_steps": 8}, "45 = 1 x 32 + 13, each in 8"),
        (VECTORS, TWO, {"batch_size": 12, "gradient_accumulation_steps": 2}, None),
        (VECTORS, TWO, {"batch_size": 88}, "0 x 88 + 45, each in 2 processes"),
        (VECTORS, ONE, {"epochs": None, "steps": 5, "batch_size": 11}, "45 = 4 x 11 + 1"),
        (VECTORS, ONE, {"epochs": None, "steps": 4, "batch_size": 11}, None),
        (VECTORS, ONE, {"epochs": None, "steps": 4, "batch_size": 11, "guard": {}}, "45 = 4 x 11 + 1"),
        (VECTORS, ONE, {"batch_size": 16}, None),
        (PIXELS, ONE, {"batch_size": 11}, None),
        (LAYERS, ONE, {"batch_size": 11}, None),
        (NET, ONE, {"batch_size": 11}, "45 = 4 x 11 + 1"),  # of 8 x 8 pixels it leaves one
    ],
)
def test_a_part_of_one_example_is_refused_where_the_model_cannot_learn_from_it(
    image_examples: Path, model: Model, degrees: Degrees, train: dict[str, Any], sum_: str | None
) -> None:
    if sum_ is None:
        checked(image_examples, model, degrees, **train)
        return
    with pytest.raises(InputError, match=r"teacher\.train\.batch_size: .*Expected more than 1 value") as refused:
        checked(image_examples, model, degrees, **train)
    assert sum_ in str(refused.value)
    size = int(str(refused.value).rpartition("with ")[2].partition(" ")[0])
    checked(image_examples, model, degrees, **{**train, "batch_size": size})


def test_of_a_pipeline_that_fills_micro_batches_up_means_would_count_what_fills_them(image_examples: Path) -> None:
    blocks = FactoryModel.model_validate(factory("Blocks"))
    full, short = ({"batch_size": size, "gradient_accumulation_steps": 4} for size in (20, 16))
    checked(image_examples, blocks, Degrees(pp=2), **full)
    with pytest.raises(InputError, match=r"teacher\.train\.batch_size: 45 examples do not fill .* BatchNorm"):
        checked(image_examples, blocks, Degrees(pp=2), **short)


@pytest.mark.parametrize(("world", "size", "right"), [((1, 1), 11, False), ((2, 2), 48, False), ((1, 1), 12, True)])
def test_what_the_student_cannot_learn_from_is_told_before_its_teacher_is_trained(
    tmp_path: Path, image_examples: Path, world: tuple[int, int], size: int, right: bool
) -> None:
    later = {**jobs.TRAIN, "strategy": "ddp", "batch_size": size}
    later["gradient_accumulation_steps"] = 1 if world == (1, 1) else 12  # of 48, over four processes, one each
    factories = {"student.model": factory("vectors")}
    spec = jobs.spec(
        tmp_path,
        image_examples,
        jobs.VIT,
        later_models=factories,
        student_train=later,
        student_world=world,
        student_objectives=[{"type": "logits"}],
    )
    job = training_of(spec)
    if right:
        try_later_models(job, open_split(image_examples, "train"), "cpu")
        return
    with pytest.raises(InputError, match=r"^student\.train\.batch_size: .*Expected more than 1 value"):
        try_later_models(job, open_split(image_examples, "train"), "cpu")
