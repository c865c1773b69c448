"""Sections of the recipe's `train`: the optimiser, its learning rate, what changes images, what guards steps."""

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
    """Names of parameters without weight decay, with * for any part of them: ["*.bias", "*norm*"]. Default: all vectors
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
    """In steps, or as a share of all of them (0.1)."""
    decay: Literal["cosine", "linear", "constant"] = "cosine"
    final: Annotated[float, Field(ge=0, le=1)] = 0.0


class RandAugment(Section):
    """Random operations on each image (Cubuk et al. 2020)."""

    operations: Positive
    """How many, one after the other, each drawn from all fourteen."""
    magnitude: Annotated[int, Field(ge=0, le=10)]
    """How much each changes, from nothing to the most."""


class Augment(Section):
    """How training images are changed at random; teacher and student see the same."""

    flip: bool = False
    """Half of them from left to right."""
    crop: Annotated[int, Field(ge=0)] = 0
    """Pixels of a black frame around them, out of which their size is cut at a random place."""
    rand_augment: RandAugment | None = None
    """After that."""
    mixup: Annotated[float, Field(gt=0)] | None = None
    """Each is mixed with another of its batch, labels too, with shares of Beta(mixup, mixup) (Zhang et al. 2018)."""


class Guard(Section):
    """Which steps are skipped, and when that does not help.

    A step whose loss or gradient is not finite always is.
    """

    spike: Annotated[float, Field(gt=1)] | None = None
    """A step is skipped too when its loss is more than so many times the median of the last 50 that were taken."""
    rollback_after: Positive = 10
    """After so many skipped steps in a row training goes back to its last checkpoint, and passes over the batches
    since."""
