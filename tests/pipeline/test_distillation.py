from typing import Any

import pytest

from pipelines.distillation import build
from understudy.recipe import Recipe
from understudy.recipe.file import from_values
from understudy.steps import STEPS, step_names

CHAIN = ["ingest", "prepare", "teacher", "distill", "evaluate", "gate", "register"]


def tasks(recipe: Recipe) -> dict[str, Any]:
    return dict(build(recipe).pipeline_spec.root.dag.tasks)


def producers(task: Any) -> dict[str, str]:
    """The task that each input comes from; "" for one that is empty."""
    found = {}
    for name, given in task.inputs.parameters.items():
        kind = given.WhichOneof("kind")
        assert kind == "task_output_parameter" or given.runtime_value.constant.string_value == "", name
        found[name] = given.task_output_parameter.producer_task
    return found


@pytest.fixture(params=[True, False])
def control(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def wanted(recipe: Recipe, control: bool) -> Recipe:
    return from_values(recipe.model_dump(mode="json", by_alias=True), [f"student.control={control}"], "test")


def test_the_tasks_are_the_recipes_steps(wanted: Recipe, control: bool) -> None:
    assert set(tasks(wanted)) == {"start", *step_names(wanted)} == {"start", *CHAIN, *(["control"] if control else [])}
    assert set(step_names(wanted)) <= set(STEPS)


def test_each_task_gets_what_the_others_give(wanted: Recipe, control: bool) -> None:
    found = {name: producers(task) for name, task in tasks(wanted).items() if name != "start"}
    models = {"teacher": "teacher", "student": "distill", "control": "control" if control else ""}
    origin = {"run": "start", "records": "ingest", "examples": "prepare", **models}
    expected = {
        "ingest": {"run": "start"},
        "prepare": {"run": "start", "records": "ingest"},
        "teacher": {"run": "start", "examples": "prepare"},
        "control": {"run": "start", "examples": "prepare"},
        "distill": {"run": "start", "examples": "prepare", "teacher": "teacher"},
        "evaluate": {"run": "start", "examples": "prepare", **models},
        "gate": {**origin, "measures": "evaluate"},
        "register": {**origin, "measures": "evaluate", "verdict": "gate"},
    }
    assert found == {name: inputs for name, inputs in expected.items() if name in tasks(wanted)}


def test_the_steps_of_a_pipeline_lie_in_the_order_in_which_they_run(wanted: Recipe) -> None:
    order = ["start", *step_names(wanted)]
    for name, task in tasks(wanted).items():
        assert all(order.index(before) < order.index(name) for before in task.dependent_tasks)


def test_the_step_names_that_the_first_task_checks_is_the_pipelines(wanted: Recipe) -> None:
    given = tasks(wanted)["start"].inputs.parameters["steps"].runtime_value.constant.string_value
    assert given.split(",") == step_names(wanted)
