"""The distillation pipeline. Its graph comes from the recipe; overrides and seed stay open as its parameters."""

import json
from collections.abc import Callable
from typing import Any

from kfp import dsl

from components.control.component import control
from components.distill.component import distill
from components.evaluate.component import evaluate
from components.gate.component import gate
from components.ingest.component import ingest
from components.prepare.component import prepare
from components.register.component import register
from components.start.component import start
from components.teacher.component import teacher
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

    def task(made: Any) -> Any:
        """KFP's own cache is off: its keys do not see the data behind an address. The step cache decides."""
        settle(made)
        return made.set_caching_options(enable_caching=False)

    def digest(made: Any) -> Any:
        return task(made).outputs["Output"]

    @dsl.pipeline(name=recipe.name, description=f"Distils {recipe.name} and puts the student up for review")
    def distillation(overrides: str = "", seed: int = recipe.seed) -> None:
        run = task(
            start(
                recipe=values,
                overrides=overrides,
                seed=seed,
                job_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
                steps=",".join(steps),
            )
        ).output
        records = digest(ingest(run=run))
        examples = digest(prepare(run=run, records=records))
        lead = digest(teacher(run=run, examples=examples))
        models = {
            "teacher": lead,
            "student": digest(distill(run=run, examples=examples, teacher=lead)),
            "control": digest(control(run=run, examples=examples)) if "control" in steps else "",
        }
        measures = digest(evaluate(run=run, examples=examples, **models))
        origin = {"records": records, "examples": examples, **models}
        verdict = digest(gate(run=run, measures=measures, **origin))
        task(register(run=run, measures=measures, verdict=verdict, **origin))

    return distillation
