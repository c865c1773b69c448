from typing import Any

import pytest

from understudy.pipelines.distillation import build
from understudy.recipe import Recipe
from understudy.recipe.file import from_values
from understudy.steps import STEPS, step_names


def dag(pipeline: Any, *below: str) -> dict[str, Any]:
    """The tasks of a pipeline, or of a group of it, by the names that KFP's page shows."""
    component = pipeline.pipeline_spec.root
    for name in below:
        group = {task.task_info.name: task for task in component.dag.tasks.values()}[name]
        component = pipeline.pipeline_spec.components[group.component_ref.name]
    return {task.task_info.name: task for task in component.dag.tasks.values()}


def before(task: Any) -> set[str]:
    return set(task.dependent_tasks)


@pytest.fixture(params=[True, False])
def control(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def wanted(recipe: Recipe, control: bool) -> Recipe:
    return from_values(recipe.model_dump(mode="json", by_alias=True), [f"student.control={control}"], "test")


def test_the_steps_are_a_chain_and_the_control_goes_beside_it(wanted: Recipe, control: bool) -> None:
    found = {name: before(task) for name, task in dag(build(wanted), "to be made").items()}
    assert found == {
        "ingest": set(),
        "prepare": {"ingest"},
        "teacher": {"prepare"},
        "distill": {"teacher"},
        **({"control": {"prepare"}} if control else {}),
        "evaluate": {"distill", "control"} if control else {"distill"},
        "gate": {"evaluate"},
        "approved": {"gate"},
        "rejected": {"gate"},
    }


def test_a_task_takes_the_run_and_nothing_else_from_the_one_before(wanted: Recipe) -> None:
    for task in dag(build(wanted), "to be made").values():
        assert len([given for name, given in task.inputs.parameters.items() if name == "run"]) <= 1
        conditions = {"start-Output", "gate-Output", "gate-run", "fail_when_rejected"}
        assert set(task.inputs.parameters) <= {"run", *(f"pipelinechannel--{name}" for name in conditions)}


def test_a_model_is_there_only_where_the_student_was_approved(wanted: Recipe) -> None:
    pipeline = build(wanted)
    assert set(dag(pipeline, "to be made", "approved")) == {"register"}
    assert set(dag(pipeline, "to be made", "rejected")) == {"rejected"}
    outputs = pipeline.pipeline_spec.components["comp-rejected"].output_definitions.artifacts
    kinds = {artifact.artifact_type.schema_title for artifact in outputs.values()}
    assert kinds == {"system.Markdown", "system.HTML"}


def test_a_run_of_which_all_is_there_has_two_tasks(wanted: Recipe) -> None:
    pipeline = build(wanted)
    assert set(dag(pipeline)) == {"start", "to be made", "found, approved", "found, rejected"}
    assert set(dag(pipeline, "found, approved")) == {"reused"}
    assert {name.partition("-")[0] for name in dag(pipeline, "found, rejected")} == {"rejected"}
    conditions = {name: task.trigger_policy.condition for name, task in dag(pipeline).items()}
    words = {name: condition.rpartition("== ")[2] for name, condition in conditions.items() if condition}
    assert words == {"to be made": "'nothing'", "found, approved": "'approved'", "found, rejected": "'rejected'"}


def test_a_rejection_leaves_the_run_green_unless_a_parameter_says_otherwise(wanted: Recipe) -> None:
    pipeline = build(wanted)
    parameter = pipeline.pipeline_spec.root.input_definitions.parameters["fail_when_rejected"]
    assert not parameter.default_value.bool_value
    for group in (("to be made", "rejected"), ("found, rejected",)):
        (task,) = dag(pipeline, *group).values()
        given = task.inputs.parameters["fails"]
        assert given.component_input_parameter == "pipelinechannel--fail_when_rejected"


def test_every_step_has_a_task(wanted: Recipe) -> None:
    pipeline = build(wanted)
    tasks = {**dag(pipeline, "to be made"), **dag(pipeline, "to be made", "approved")}
    assert {name for name, task in tasks.items() if not task.trigger_policy.condition} == set(step_names(wanted))
    assert set(step_names(wanted)) <= set(STEPS)


def test_the_step_names_that_the_first_task_checks_is_the_pipelines(wanted: Recipe) -> None:
    given = dag(build(wanted))["start"].inputs.parameters["steps"].runtime_value.constant.string_value
    assert given.split(",") == step_names(wanted)
