"""The tasks that a recipe can name, each with its module.

The recipe is a layer below the tasks and imports none of them. A task's module is loaded by its path, like an entry
point, and is itself the task: the recipe reads its constants, and the layers above call its functions (each layer
declares those as a protocol; tests/unit/tasks/test_protocols.py lists them all).
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Protocol, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from understudy.recipe.objectives import Objectives, labels_and_logits

TASKS = {
    "image-classification": "understudy.tasks.image_classification",
    "causal-lm": "understudy.tasks.causal_lm",
    "text-classification": "understudy.tasks.text_classification",
    "token-classification": "understudy.tasks.token_classification",
    "chat": "understudy.tasks.chat",
}

Kind = Literal["image", "text", "optional text", "label", "messages"]
"""The content of a record's field. An optional one is there if the recipe names it; messages are a conversation."""
KINDS: frozenset[Kind] = frozenset(get_args(Kind))


class RecipeTask(Protocol):
    """A task, as the recipe sees it."""

    NOUN: str
    """An example in a message: an image, a document."""
    INPUT: str
    """An input of a model in a message: an image, a sequence."""
    TARGETS: str
    """The targets of training in a message: images, tokens."""
    FIELDS: Mapping[str, Kind]
    """The fields of a record. The first one is its content; a label has the name label."""
    LABELLED: bool
    """Whether an example has one of a fixed set of labels, its field `label`, and is one prediction: right or wrong."""
    PACKED: bool
    """Whether a training sequence holds several whole examples, which do not attend to each other."""
    PROPOSED_FOR: str
    """The contents of a folder for which `understudy init` proposes it: images, documents, or nothing ("")."""
    METRICS: tuple[str, ...]
    """Its metrics in the order of the report; the first is the gate's default."""
    SETTINGS: frozenset[str]
    """The settings that apply to it, of those that do not apply to every task: see `specific` in rules.py."""
    AUTO_MODEL: str
    """The class of transformers that builds its models from their configuration."""
    ARCHITECTURES: str
    """The table of transformers with the classes of its models by model type."""
    PEFT_TYPE: str | None
    """The task's name in peft; None if peft has none."""
    LABELS_WEIGHT: float
    """By default, the weight of the labels among a student's objectives; the teacher's logits have the rest."""
    TEMPERATURE: float
    """By default, the temperature of the teacher's logits."""


def load(name: str) -> RecipeTask:
    """A task by its name in TASKS."""
    task: RecipeTask = importlib.import_module(TASKS[name])
    return task


def all_metrics() -> list[str]:
    """The metrics of all tasks."""
    return list(dict.fromkeys(metric for name in TASKS for metric in load(name).METRICS))


def default_objectives(name: str) -> Objectives:
    """A student's default objectives."""
    task = load(name)
    return labels_and_logits(task.LABELS_WEIGHT, task.TEMPERATURE)


class _OneOf:
    """Lets pydantic accept certain names only; they are read when the schema is built, not at definition."""

    def __init__(self, names: Callable[[], list[str]]) -> None:
        self._names = names

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(self._names())


TaskName = Annotated[str, _OneOf(lambda: list(TASKS))]
MetricName = Annotated[str, _OneOf(all_metrics)]
