"""Sections of the recipe's `train`: optimiser, learning-rate schedule, augmentation and guard."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from understudy.recipe.section import Fraction, Positive, Section


class Optimizer(Section):
    """AdamW (Loshchilov & Hutter 2019) or SGD with momentum."""

    name: Literal["adamw", "adamw8bit", "sgd"] = "adamw"
    """adamw8bit keeps AdamW's two moments in eight bits each (Dettmers et al. 2022)."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    no_decay: tuple[str, ...] | None = None
    """Names of parameters without weight decay, with * as a wildcard: ["*.bias", "*norm*"]. Default: all vectors
    (biases, norms)."""
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    momentum: Fraction = 0.9


def _warmup_kind(value: object) -> str:
    return "share" if isinstance(value, float) else "steps"


Warmup = Annotated[
    Annotated[int, Field(ge=0), Tag("steps")] | Annotated[float, Field(gt=0, lt=1), Tag("share")],
    Discriminator(_warmup_kind),
]


class Schedule(Section):
    """Linear warm-up, then decay to `final` times the learning rate."""

    warmup: Warmup = 0
    """In steps, or as a share of all steps (0.1)."""
    decay: Literal["cosine", "linear", "constant"] = "cosine"
    final: Annotated[float, Field(ge=0, le=1)] = 0.0


class RandAugment(Section):
    """Random operations on each image (Cubuk et al. 2020)."""

    operations: Positive
    """Operations on each image, one after the other, each drawn from all fourteen."""
    magnitude: Annotated[int, Field(ge=0, le=10)]
    """Strength of each operation, from none (0) to the maximum (10)."""


class Augment(Section):
    """Random changes of training images; teacher and student see the same images."""

    flip: bool = False
    """Flip half of the images from left to right."""
    crop: Annotated[int, Field(ge=0)] = 0
    """Width in pixels of a black frame around each image, out of which its size is cropped at a random place."""
    rand_augment: RandAugment | None = None
    """Applied after flip and crop."""
    mixup: Annotated[float, Field(gt=0)] | None = None
    """Mix each image and its label with another of the batch, in shares from Beta(mixup, mixup) (Zhang et al. 2018)."""


class Guard(Section):
    """Skips harmful steps, and rolls training back if that does not help.

    A step whose loss or gradient is not finite is always skipped.
    """

    spike: Annotated[float, Field(gt=1)] | None = None
    """Also skip a step whose loss is more than so many times the median loss of the last 50 steps taken."""
    rollback_after: Positive = 10
    """Skipped steps in a row after which training returns to its last checkpoint, and passes over the batches since."""
