"""A task, as evaluation sees it: its targets, its test split, and how an example is shown to a reader."""

from pathlib import Path
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from understudy.data.measured import Integers, TestSplit
from understudy.models.facts import Facts
from understudy.recipe.tasks import RecipeTask, load


class EvaluatedTask(RecipeTask, Protocol):
    """The functions of a task's module that evaluation calls."""

    def targets(self, examples: Path, split: str) -> NDArray[Any]:
        """The targets of a split, end to end in the order of its examples: indices among a prediction's logits."""

    def lengths(self, examples: Path) -> tuple[Integers, Integers]:
        """The number of predictions, and of UTF-8 bytes, of each test example; 0 bytes if it is no text."""

    def test_split(
        self, examples: Path, facts: Facts, model: Facts, stride: int | None, records: Path | None, folder: Path | None
    ) -> TestSplit:
        """The test split as a model sees it: the same examples, in the same order, for every model.

        Args:
            examples: the folder of an `examples` object.
            facts: the content of its examples.json.
            model: the facts about the model's own examples, which may differ for a champion of an earlier run.
            stride: the stride of documents' windows in tokens; None for the sequence length.
            records: the folder of the records behind the examples; needed if they differ.
            folder: an empty folder for the arrays of the model's own examples; needed if they differ.
        """

    def shown(self, examples: Path, facts: Facts, number: int) -> NDArray[Any] | str:
        """A test example for a reader: pixels (channels, side, side), or the beginning of a text."""

    def learned(self, examples: Path) -> list[list[tuple[str, bool]]]:
        """A few training examples for a reader: their parts, and whether each is learned. Empty if all of them are."""


def evaluated_task(name: str) -> EvaluatedTask:
    """A task by its name."""
    return cast("EvaluatedTask", load(name))
