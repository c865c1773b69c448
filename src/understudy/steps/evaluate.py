"""Models -> measures: every model on the same test split, by a job without credentials.

Cached results are not measured again; all models are timed side by side each time.
"""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from understudy.evaluate.contents import RESULTS, results_file
from understudy.graph import EXAMPLES, Node
from understudy.launch.platform import platform
from understudy.recipe import Recipe
from understudy.recipe.roles import CHAMPION, CONTROL, STUDENT
from understudy.steps.champion import champion_input
from understudy.steps.delivery import deliver
from understudy.steps.foreign import RECORD
from understudy.steps.identity import MEASURED_BY, task_code
from understudy.steps.job import run_job
from understudy.steps.job_spec import evaluation_spec
from understudy.steps.measures import FILES, PER_EXAMPLE, checked_measures
from understudy.steps.results import model_results, settings_of
from understudy.steps.step import Step, Work, World
from understudy.store import Run, Store


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    return {
        "task": recipe.task,
        "task_code": task_code(recipe.task, MEASURED_BY),
        "metrics": list(recipe.metrics),
        "gate_metric": recipe.gate_metric,
        "reference": recipe.gate.teacher,
        "latency": recipe.evaluate.latency.model_dump(mode="json"),
        "strategy": recipe.evaluate.model_dump(mode="json")["strategy"],
        **settings_of(recipe, store),
    }


def _champion(run: Run, store: Store, inputs: Mapping[str, str]) -> World:
    return World(inputs=champion_input(store, run, inputs))


def _evaluate(work: Work) -> None:
    roles = (*work.recipe.all_teachers, STUDENT, CONTROL, CHAMPION)
    models = {role: work.input(role) for role in roles if role in work.inputs}
    began = time.monotonic()
    with model_results(work, list(models)) as results:
        spec = evaluation_spec(work, list(models), results.cached)
        platform().prepare(work.run)
        output = work.lease.staging()
        files = {role: output / results_file(role) for role in models if role not in results.cached}
        deliver(run_job(work, spec), output, {*FILES, *map(results_file, models)}.__contains__)
        cached = {role: folder / RESULTS for role, folder in results.cached.items()}
        measures = checked_measures(output, work.recipe, models, work.input(EXAMPLES), cached | files)
        results.keep(files, time.monotonic() - began)
    for name in FILES:
        (output / name).rename(work.staged / name)
    if "foreign" in work.inputs:
        _add_foreign(work.input("foreign"), work.staged)
    for role, model in measures["models"].items():
        work.facts.update({f"{role}/{name}": value for name, value in model["metrics"].items() if value is not None})


def _add_foreign(results: Path, measures: Path) -> None:
    """Add the results of a champion that understudy did not make to those of the measured models."""
    import numpy as np

    with np.load(measures / PER_EXAMPLE) as mine, np.load(results / RESULTS, allow_pickle=False) as theirs:
        both = {**mine, **theirs}
    np.savez_compressed(measures / PER_EXAMPLE, allow_pickle=False, **both)
    shutil.copyfile(results / RECORD, measures / RECORD)


def step(node: Node) -> Step:
    """The step of a node of the kind `evaluation`."""
    return Step(
        name=node.name,
        role=node.role,
        kind="measures",
        work=_evaluate,
        modules=("understudy.evaluate.measure",),
        functions=(_evaluate, _add_foreign),
        section=_section,
        inputs=node.inputs,
        outside=_champion,
    )


"""The evaluate step: every model on the same test split, in the recipe's precision, timed on the same machine.

Writes measures.json (values, intervals, sizes, speed, slices) and per_example.npz (their per-example values, which
the gate compares pairwise).
"""
