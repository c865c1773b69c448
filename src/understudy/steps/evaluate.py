"""Models -> measures: every model side by side on the same test split."""

import json
import logging
from collections.abc import Mapping

from understudy.launch.platform import platform
from understudy.recipe import FactoryModel, Recipe
from understudy.steps.champion import champion_input
from understudy.steps.identity import model_identity
from understudy.steps.step import Step, Work, World
from understudy.store import Run, Store

log = logging.getLogger(__name__)

MODELS = ("teacher", "student", "control", "champion")


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    code = {
        where: model_identity(model, store, where)
        for where, model in recipe.models.items()
        if isinstance(model, FactoryModel)
    }
    return {
        "task": recipe.task,
        "code": code,
        "metrics": list(recipe.metrics),
        "gate_metric": recipe.gate_metric,
        "evaluate": recipe.evaluate.model_dump(mode="json"),
        "device": _device(recipe),
    }


def _device(recipe: Recipe) -> str:
    """What models are measured on, and where that is a choice, what the student was trained on."""
    return platform().step_device(recipe.resources.distill)


def _champion(run: Run, store: Store, inputs: Mapping[str, str]) -> World:
    return World(inputs=champion_input(store, run, inputs))


def _evaluate(work: Work) -> None:
    from understudy.evaluate.measure import measure

    roles = [role for role in MODELS if role in work.inputs]
    log.info("measuring")
    measure(
        {role: work.input(role) for role in roles},
        {role: work.inputs[role] for role in roles},
        work.input("examples"),
        work.recipe,
        work.staged,
        _device(work.recipe),
        work.progress,
        work.input("records") if "records" in work.inputs else None,
    )
    log.info("measured")
    measures = json.loads((work.staged / "measures.json").read_text())
    for role, model in measures["models"].items():
        work.facts.update({f"{role}/{name}": value for name, value in model["metrics"].items() if value is not None})


EVALUATE = Step(
    name="evaluate",
    kind="measures",
    work=_evaluate,
    functions=(_evaluate,),
    modules=("understudy.evaluate.measure",),
    section=_section,
    inputs=("examples", "teacher", "student", "control"),
    outside=_champion,
)
