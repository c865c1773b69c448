"""The teacher that the student is compared with, where a recipe has several."""

from collections.abc import Mapping
from typing import Any

from understudy.evaluate.contents import Measures
from understudy.evaluate.metrics import METRICS
from understudy.recipe import MetricName, Recipe
from understudy.recipe.roles import TEACHER


def reference_teacher(recipe: Recipe, metrics: Mapping[str, Mapping[MetricName, float | None]]) -> str:
    """The name of the teacher that the student is compared with: gate.teacher, or the best by the gate's metric.

    Args:
        recipe: the run's.
        metrics: each model's metrics, by its role. A teacher whose metric was not measured is never the best.
    """
    names, metric = list(recipe.all_teachers), recipe.gate_metric
    if recipe.gate.teacher:
        return recipe.gate.teacher
    measured = {name: value for name in names if (value := metrics[name].get(metric)) is not None}
    best = max if METRICS[metric].higher_is_better else min
    return best(measured, key=measured.__getitem__) if measured else names[0]


def reference_as_teacher(measures: Measures, per_example: Mapping[str, Any]) -> tuple[Measures, dict[str, Any]]:
    """Measures and per-example results with the role `teacher` for the teacher that the student is compared with."""
    name = measures.get("reference", TEACHER)
    models = {_role(role, name): model for role, model in measures["models"].items()}
    slices = [{_role(key, name): value for key, value in metrics.items()} for metrics in measures["slices"]]
    renamed = {".".join((_role(role, name), array_name)): value for role, array_name, value in _parts(per_example)}
    changed: Measures = {**measures, "models": models, "slices": slices}
    return changed, renamed


def renamed_roles(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Values by role, with the role `teacher` for the one of a name."""
    return {_role(role, name): value for role, value in values.items()}


def _role(role: str, name: str) -> str:
    return TEACHER if role == name else role


def _parts(per_example: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    return [(*key.split(".", 1), value) for key, value in per_example.items()]
