"""Models -> measures: every model side by side on the same test split, by a job that holds no credentials."""

from collections.abc import Mapping

from understudy.launch.platform import platform
from understudy.recipe import FactoryModel, Recipe
from understudy.steps.champion import champion_input
from understudy.steps.delivery import deliver
from understudy.steps.identity import model_identity
from understudy.steps.job import run_job
from understudy.steps.job_spec import evaluation_spec
from understudy.steps.measures import FILES, checked_measures
from understudy.steps.step import Step, Work, World
from understudy.store import Run, Store

MODELS = ("teacher", "student", "control", "champion")


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    code = {
        where: model_identity(model, store, where)
        for where, model in recipe.models.items()
        if isinstance(model, FactoryModel)
    }
    stride = recipe.evaluate.stride or recipe.text.sequence_length
    return {
        "task": recipe.task,
        "code": code,
        "metrics": list(recipe.metrics),
        "gate_metric": recipe.gate_metric,
        "evaluate": recipe.evaluate.model_dump(mode="json") | {"stride": stride},
        "device": platform().job_device(recipe.resources.by_job["evaluate"]),
    }


def _champion(run: Run, store: Store, inputs: Mapping[str, str]) -> World:
    return World(inputs=champion_input(store, run, inputs))


def _evaluate(work: Work) -> None:
    roles = [role for role in MODELS if role in work.inputs]
    spec = evaluation_spec(work, roles)
    platform().prepare(work.run)
    deliver(run_job(work, spec), work.staged, FILES.__contains__)
    models = {role: work.input(role) for role in roles}
    measures = checked_measures(work.staged, work.recipe, models, work.input("examples"))
    for role, model in measures["models"].items():
        work.facts.update({f"{role}/{name}": value for name, value in model["metrics"].items() if value is not None})


EVALUATE = Step(
    name="evaluate",
    role="measures",
    kind="measures",
    work=_evaluate,
    modules=("understudy.evaluate.measure",),
    functions=(_evaluate,),
    section=_section,
    inputs=("examples", "teacher", "student", "control"),
    outside=_champion,
)
"""The evaluate step: every model on the same test split, on the same machine, in fp32.

Writes measures.json (values, intervals, sizes, speed, slices) and per_example.npz (what they were computed from, and
what the gate compares example by example).
"""
