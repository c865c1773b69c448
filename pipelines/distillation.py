"""The distillation pipeline: a chain of steps, each of which takes the run and records its result in the run's folder.

The recipe determines its graph; overrides, seed and fail_when_rejected are its parameters. A condition is set on the
task itself: dsl.If would draw a collapsed box, and start another pod for it. KFP skips all tasks after one whose
condition is false, so one condition on the first step skips all of them.
"""

import json
from collections.abc import Callable
from typing import Any

from kfp import dsl

from understudy.components.control.component import control
from understudy.components.distill.component import distill
from understudy.components.evaluate import classifier, component
from understudy.components.gate.component import gate
from understudy.components.ingest.component import ingest
from understudy.components.prepare.component import prepare
from understudy.components.register.component import register
from understudy.components.rejected.component import rejected
from understudy.components.start.component import start
from understudy.components.teacher.component import teacher
from understudy.recipe import Recipe
from understudy.recipe.tasks import load
from understudy.steps import step_names


def build(recipe: Recipe, settle: Callable[[Any], None] = lambda task: None) -> Any:
    """The recipe's pipeline, as kfp's graph component.

    Args:
        recipe: the recipe.
        settle: configures a task's pod; on one machine there are no pods.
    """
    values = json.dumps(recipe.model_dump(mode="json", by_alias=True))
    steps = step_names(recipe)
    evaluate = (classifier if load(recipe.task).LABELLED else component).evaluate

    def task(made: Any) -> Any:
        """Turn off KFP's cache, whose keys do not cover the data behind an address; the step cache replaces it."""
        settle(made)
        return made.set_caching_options(enable_caching=False)

    @dsl.pipeline(name=recipe.name, description=f"Distils {recipe.name} and puts the student up for review")
    def distillation(overrides: str = "", seed: int = recipe.seed, fail_when_rejected: bool = False) -> None:
        job_id = dsl.PIPELINE_JOB_ID_PLACEHOLDER
        given = {"overrides": overrides, "seed": seed, "fails": fail_when_rejected}
        begun = task(start(recipe=values, job_id=job_id, steps=",".join(steps), **given))
        _steps(begun.outputs["run"], steps, evaluate, fail_when_rejected, task)

    _run_if(distillation.pipeline_spec, "ingest", "start", "nothing")
    _run_if(distillation.pipeline_spec, "register", "gate", "approved")
    _run_if(distillation.pipeline_spec, "rejected", "gate", "rejected")
    return distillation


def _steps(run: Any, steps: list[str], evaluate: Any, fail_when_rejected: Any, task: Callable[[Any], Any]) -> None:
    """Each task passes on the run, and reads the digests of its inputs from the run's folder."""
    examples = task(prepare(run=task(ingest(run=run)).outputs["Output"])).outputs["Output"]
    student = task(distill(run=task(teacher(run=examples)).outputs["Output"])).outputs["Output"]
    measured = task(evaluate(run=student))
    if "control" in steps:
        measured.after(task(control(run=examples)))
    judged = task(gate(run=measured.outputs["Output"])).outputs["run"]
    task(register(run=judged))
    task(rejected(run=judged, fails=fail_when_rejected))


def _run_if(pipeline: Any, name: str, producer: str, word: str) -> None:
    """Run a task only if the output `Output` of an earlier task equals a word.

    kfp's SDK sets such a condition only on groups of tasks; KFP's driver evaluates it for any task. The input has the
    SDK's name for it, by which kfp.local looks up the output.

    Args:
        pipeline: the compiled pipeline (PipelineSpec), which is changed.
        name: the task that depends on it.
        producer: the earlier task.
        word: the required output.
    """
    task = pipeline.root.dag.tasks[name]
    channel = f"pipelinechannel--{producer}-Output"
    given = task.inputs.parameters[channel].task_output_parameter
    given.producer_task, given.output_parameter_key = producer, "Output"
    string = pipeline.components["comp-gate"].output_definitions.parameters["Output"].parameter_type
    pipeline.components[task.component_ref.name].input_definitions.parameters[channel].parameter_type = string
    task.trigger_policy.condition = f"inputs.parameter_values['{channel}'] == '{word}'"
