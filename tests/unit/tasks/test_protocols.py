"""Every task's module has what the layers ask of a task, under the same names and parameters."""

import inspect
from typing import Any

import pytest

from understudy.data.ingest import Checks
from understudy.data.loader import Opens
from understudy.data.prepare import Prepares
from understudy.evaluate.task import EvaluatedTask
from understudy.models.tasks import Wraps
from understudy.plan.expected import PlannedTask
from understudy.recipe.tasks import TASKS, RecipeTask, load
from understudy.registry.task import ServedTask

PROTOCOLS: tuple[Any, ...] = (RecipeTask, Checks, Prepares, Opens, PlannedTask, Wraps, EvaluatedTask, ServedTask)


def members(protocol: Any) -> dict[str, Any]:
    """The constants of a protocol, and its functions without self."""
    constants = {name: None for base in protocol.__mro__ for name in getattr(base, "__annotations__", {})}
    functions = {name: value for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"}
    return constants | functions


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_tasks_module_has_what_a_layer_asks_of_it(name: str, protocol: Any) -> None:
    task = load(name)
    for member, function in members(protocol).items():
        assert hasattr(task, member), member
        if function is not None:
            asked = [*inspect.signature(function).parameters][1:]
            assert [*inspect.signature(getattr(task, member)).parameters] == asked, member


def test_a_predictor_takes_what_the_served_script_gives_it() -> None:
    taken = {tuple(inspect.signature(load(name).Predictor).parameters) for name in TASKS}  # type: ignore[attr-defined]
    assert taken == {("facts", "logits", "folder", "artifacts", "stride")}
