"""A teacher and examples -> its logits on the training split, which every training that learns from it reads.

They do not depend on a student, on a seed, or on how many processes write them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from understudy.graph import Node
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
from understudy.teachers.cache.parts import FACTS, is_file

KIND = "logits"
MODULES = ("understudy.teachers.caching", "understudy.evaluate.loading", "understudy.models.trust")
"""The modules that compute logits, with all their imports."""
SHOWN = ("examples", "positions", "bytes", "mean_entries", "mean_kl")
"""Facts of the cache that the manifest has, too."""


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
    from understudy.teachers.cache.reader import CachedLogits

    spec = logits_spec(work, node)
    platform().prepare(work.run)
    deliver(run_job(work, spec), work.staged, is_file)
    cache = CachedLogits(work.staged)
    cache.check({"teacher": work.inputs[node.teachers[0]], "examples": work.inputs[node.examples]})
    work.facts.update({name: cache.facts[name] for name in SHOWN if name in cache.facts})
    assert (work.staged / FACTS).exists()
