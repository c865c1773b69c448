"""The facts about examples that a recipe's data is expected to become, as its task foresees them; nothing is read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from understudy.models.facts import Facts
from understudy.recipe import Recipe
from understudy.recipe.data import Data
from understudy.recipe.tasks import load

if TYPE_CHECKING:  # a recipe is checked without torch
    from torch import Tensor

LABELS = 10
"""Labels assumed before they are counted; the last layer is small."""


class PlannedTask(Protocol):
    """A task, as the plan sees it."""

    def expected(self, data: Data, labels: Sequence[str], tokens: int) -> Facts:
        """The expected examples.json, as far as it decides a model's size.

        Args:
            data: the recipe's section.
            labels: labels to assume, if there are any.
            tokens: the size of the vocabulary, for texts.
        """

    def blank(self, facts: Facts, count: int) -> "tuple[Tensor, Tensor]":
        """Inputs and labels of `count` examples with these facts: zeros, of the shapes that `open_split` gives."""


def planned_task(name: str) -> PlannedTask:
    """A task by its name."""
    return cast("PlannedTask", load(name))


def facts_of(recipe: Recipe, tokens: int) -> Facts:
    """The expected examples.json, as far as it decides a model's size.

    Args:
        recipe: the recipe, before its data is read.
        tokens: the size of the vocabulary, for texts.
    """
    labels = [str(label) for label in range(LABELS)]
    return planned_task(recipe.task).expected(recipe.data, labels, tokens)
