from typing import Any

import pytest

from understudy.pipelines.distillation import build
from understudy.recipe import Recipe
from understudy.recipe.file import from_values
from understudy.steps import step_names


def dag(pipeline: Any) -> dict[str, Any]:
    """The tasks of a pipeline, by the names that KFP's page shows."""
    return {task.task_info.name: task for task in pipeline.pipeline_spec.root.dag.tasks.values()}


@pytest.fixture(params=[True, False])
def control(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def recipe_variant(recipe: Recipe, control: bool) -> Recipe:
    return from_values(recipe.model_dump(mode="json", by_alias=True), [f"student.control={control}"], "test")


def test_the_first_page_shows_the_whole_chain_and_the_control_goes_beside_it(
    recipe_variant: Recipe, control: bool
) -> None:
    pipeline = build(recipe_variant)
    chain = {
        "start": set(),
        "ingest": {"start"},
        "prepare": {"ingest"},
        "teacher": {"prepare"},
        "distill": {"teacher"},
        **({"control": {"prepare"}} if control else {}),
        "evaluate": {"distill", "control"} if control else {"distill"},
        "gate": {"evaluate"},
        "register": {"gate"},
        "rejected": {"gate"},
    }
    tasks = dag(pipeline)
    assert {name: set(tasks[name].dependent_tasks) for name in chain} == chain
    assert ("control" in tasks) == control
    kinds = {component.WhichOneof("implementation") for component in pipeline.pipeline_spec.components.values()}
    assert kinds == {"executor_label"}, "a box would have to be opened"


def test_a_task_takes_the_run_and_nothing_else_from_the_one_before(recipe_variant: Recipe) -> None:
    for name, task in dag(build(recipe_variant)).items():
        conditions = {"pipelinechannel--start-Output", "pipelinechannel--gate-Output"}
        assert set(task.inputs.parameters) - conditions <= {"run", "node", "fails"} or name == "start"


CONDITIONS = {"ingest": ("start", "nothing"), "register": ("gate", "approved"), "rejected": ("gate", "rejected")}


def test_what_is_not_wanted_is_skipped_by_a_condition_of_the_task_itself(recipe_variant: Recipe) -> None:
    """A run that reuses everything has one task: KFP runs nothing after a task that was skipped."""
    pipeline = build(recipe_variant).pipeline_spec
    tasks = dict(pipeline.root.dag.tasks)
    assert {name for name, task in tasks.items() if task.trigger_policy.condition} == CONDITIONS.keys()
    for name, (producer, word) in CONDITIONS.items():
        channel = f"pipelinechannel--{producer}-Output"
        assert tasks[name].trigger_policy.condition == f"inputs.parameter_values['{channel}'] == '{word}'"
        source = tasks[name].inputs.parameters[channel].task_output_parameter
        assert (source.producer_task, source.output_parameter_key) == (producer, "Output")
        parameters = pipeline.components[tasks[name].component_ref.name].input_definitions.parameters
        output = pipeline.components[f"comp-{producer}"].output_definitions.parameters["Output"]
        assert parameters[channel].parameter_type == output.parameter_type


def test_no_model_of_a_rejected_student_is_shown(recipe_variant: Recipe) -> None:
    outputs = build(recipe_variant).pipeline_spec.components["comp-rejected"].output_definitions.artifacts
    assert set(outputs) == {"verdict", "report"}


SHOWN = {"system.Markdown", "system.HTML", "system.Metrics", "system.ClassificationMetrics"}


def test_every_artifact_is_of_a_type_that_kfp_s_page_can_show(recipe_variant: Recipe) -> None:
    """Of a system.Model or system.Dataset the page says "There is no metrics artifact available in this step"."""
    for component in build(recipe_variant).pipeline_spec.components.values():
        for name, artifact in component.output_definitions.artifacts.items():
            assert artifact.artifact_type.schema_title in SHOWN, name


def test_a_rejection_leaves_the_run_green_unless_a_parameter_says_otherwise(recipe_variant: Recipe) -> None:
    pipeline = build(recipe_variant)
    parameter = pipeline.pipeline_spec.root.input_definitions.parameters["fail_when_rejected"]
    assert not parameter.default_value.bool_value
    for name in ("start", "rejected"):
        parameter = dag(pipeline)[name].inputs.parameters["fails"]
        assert parameter.component_input_parameter == "fail_when_rejected"


def test_every_step_has_a_task(recipe_variant: Recipe) -> None:
    assert set(dag(build(recipe_variant))) == {"start", *step_names(recipe_variant), "rejected"}


def test_the_step_names_that_the_first_task_checks_is_the_pipelines(recipe_variant: Recipe) -> None:
    names = dag(build(recipe_variant))["start"].inputs.parameters["steps"].runtime_value.constant.string_value
    assert names.split(",") == step_names(recipe_variant)
