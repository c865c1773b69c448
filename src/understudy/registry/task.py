"""A task, as the registry sees it: the form of its versions' inputs and outputs, and the files of a version.

MLflow stores a task's module with each version, and serving.py runs its Predictor where understudy is not installed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from understudy.data.records import Content
from understudy.models.facts import Facts
from understudy.recipe.tasks import RecipeTask, load


class ServedTask(RecipeTask, Protocol):
    """The parts of a task's module that the registry uses."""

    OUTPUTS: Mapping[str, str]
    """The columns of a response, with their types: string, strings, long, double or doubles."""
    PARAMS: Mapping[str, int | float | list[str]]
    """Parameters of a request, with their defaults."""
    LIBRARIES: tuple[str, ...]
    """Libraries that its Predictor imports."""
    FILES: Mapping[str, str]
    """Modules whose files its Predictor loads, by the names of the version's artifacts."""

    def inputs(self, facts: Facts) -> Mapping[str, str]:
        """The columns of a request, with their types, also messages. Without columns, arrays of objects."""

    def example(self, facts: Facts) -> dict[str, list[Any]]:
        """A request, by column."""

    def request(self, examples: Sequence[Content]) -> tuple[dict[str, list[Any]], Mapping[str, int]]:
        """The request that scores test examples: its columns and its parameters."""

    def losses(self, facts: Facts, rows: Mapping[str, Any], examples: Sequence[Content]) -> list[float]:
        """The negative log-likelihoods of the examples in nats, from the response."""

    def losses_by_transformers(
        self, facts: Facts, net: Any, model: Path, examples: Sequence[Content]
    ) -> tuple[list[float], str]:
        """The same from a network that transformers alone has loaded.

        Args:
            facts: about the model's examples.
            net: the network.
            model: the folder of its files.
            examples: the records.

        Returns:
            The losses, and the name of AutoTokenizer's class if its tokens differ.
        """


def served_task(name: str) -> ServedTask:
    """A task by its name."""
    return cast("ServedTask", load(name))
