"""The distillation pipeline: a chain of steps, each of which takes the run and leaves its result in the run's folder.

Its graph comes from the recipe; overrides, seed and fail_when_rejected stay open as its parameters. What a condition
looks at is a task's output of the name Output: kfp.local finds no other one.
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
from understudy.components.reused.component import reused
from understudy.components.start.component import start
from understudy.components.teacher.component import teacher
from understudy.recipe import Recipe
from understudy.steps import step_names


def build(recipe: Recipe, settle: Callable[[Any], None] = lambda task: None) -> Any:
    """The recipe's pipeline, as kfp's graph component.

    Args:
        recipe: the recipe.
        settle: gives every task what its pod needs; on one machine there are none.
    """
    values = json.dumps(recipe.model_dump(mode="json", by_alias=True))
    steps = step_names(recipe)
    evaluate = (classifier if recipe.task == "image-classification" else component).evaluate

    def task(made: Any) -> Any:
        """KFP's own cache is off: its keys do not see the data behind an address. The step cache decides."""
        settle(made)
        return made.set_caching_options(enable_caching=False)

    @dsl.pipeline(name=recipe.name, description=f"Distils {recipe.name} and puts the student up for review")
    def distillation(overrides: str = "", seed: int = recipe.seed, fail_when_rejected: bool = False) -> None:
        job_id = dsl.PIPELINE_JOB_ID_PLACEHOLDER
        begun = task(start(recipe=values, overrides=overrides, seed=seed, job_id=job_id, steps=",".join(steps)))
        run, found = begun.outputs["run"], begun.outputs["Output"]
        with dsl.If(found == "nothing", name="to be made"):
            _work(run, steps, evaluate, fail_when_rejected, task)
        with dsl.If(found == "approved", name="found, approved"):
            task(reused(run=run))
        with dsl.If(found == "rejected", name="found, rejected"):
            task(rejected(run=run, fails=fail_when_rejected))

    return distillation


def _work(run: Any, steps: list[str], evaluate: Any, fail_when_rejected: Any, task: Callable[[Any], Any]) -> None:
    """The steps. A task hands on the run, and takes the digests of what it needs from the run's folder."""
    examples = task(prepare(run=task(ingest(run=run)).outputs["Output"])).outputs["Output"]
    student = task(distill(run=task(teacher(run=examples)).outputs["Output"])).outputs["Output"]
    measured = task(evaluate(run=student))
    if "control" in steps:
        measured.after(task(control(run=examples)))
    verdict = task(gate(run=measured.outputs["Output"])).outputs
    with dsl.If(verdict["Output"] == "approved", name="approved"):
        task(register(run=verdict["run"]))
    with dsl.If(verdict["Output"] == "rejected", name="rejected"):
        task(rejected(run=verdict["run"], fails=fail_when_rejected))
