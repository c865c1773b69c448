"""A teacher and examples -> its logits on the training split, which every training that learns from it reads.

They do not depend on a student, on a seed, or on how many processes write them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from understudy.graph import Node
from understudy.jobs.payload import LogitCaching
from understudy.launch.platform import platform
from understudy.models.user_code import user_code
from understudy.recipe import FactoryModel, Recipe
from understudy.recipe.logit_rules import temperature_of
from understudy.steps.delivery import deliver
from understudy.steps.identity import TRAINED_BY, task_code
from understudy.steps.job import run_job
from understudy.steps.job_spec import logits_spec
from understudy.steps.step import Step, Work
from understudy.store import Store
from understudy.teachers.cache import layout
from understudy.teachers.cache.verification import verified

KIND = "logits"
MODULES = ("understudy.teachers.caching", "understudy.evaluate.loading", "understudy.models.trust")
"""The modules that compute logits, with all their imports."""


def step(node: Node) -> Step:
    """The step that caches a teacher's logits."""
    return Step(
        name=node.name,
        role=node.role,
        kind=KIND,
        work=partial(_cache, node),
        modules=MODULES,
        section=partial(_section, node),
        inputs=node.inputs,
    )


def _section(node: Node, recipe: Recipe, store: Store) -> Mapping[str, Any]:
    del store
    (name,), model = node.teachers, recipe.models[node.model]
    cache = recipe.logit_cache(name)
    assert cache is not None
    code = user_code(model.factory.partition(":")[0]).identity if isinstance(model, FactoryModel) else ""
    return {
        "cache": cache.model_dump(mode="json"),
        "temperature": temperature_of(recipe, name),
        "precision": recipe.evaluate.precision,
        "batch_size": recipe.evaluate.batch_size,
        "device": platform().job_device(recipe.resources.evaluation),
        "task_code": task_code(recipe.task, TRAINED_BY),
        "code": code,
    }


def _cache(node: Node, work: Work) -> None:
    spec = logits_spec(work, node)
    platform().prepare(work.run)
    deliver(run_job(work, spec), work.staged, lambda name: bool(layout.FILES.fullmatch(name)))
    assert isinstance(spec.payload, LogitCaching)
    description = verified(work.staged, spec.payload.facts)
    work.facts.update({name: value for name, value in description.statistics.items() if value is not None})
