"""The recipe's section `logits` of a teacher: how much of its distribution is cached for the trainings that read it."""

from typing import Annotated, Literal

from pydantic import Field

from understudy.recipe.section import Section

Entries = Annotated[int, Field(gt=0, le=2**16)]


class TopK(Section):
    """The likeliest classes of each target; the mass of the others is spread evenly over them."""

    type: Literal["top_k"]
    k: Entries = 50


class Nucleus(Section):
    """The fewest classes that have a share of the mass (Holtzman et al. 2020); the rest is spread evenly."""

    type: Literal["nucleus"]
    mass: Annotated[float, Field(gt=0, lt=1)] = 0.98
    most: Entries = 100
    """The most classes of a target."""


class Sampled(Section):
    """Classes drawn from the distribution, with replacement (Anshumann et al. 2025, Sparse Logit Sampling).

    In expectation the loss on them has the gradient of the loss on the whole distribution.
    """

    type: Literal["sampled"]
    draws: Annotated[int, Field(gt=0, le=4096)] = 50


LogitCache = Annotated[TopK | Nucleus | Sampled, Field(discriminator="type")]
