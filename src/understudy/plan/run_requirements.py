"""Requirements of a run beside its trainings: stored models, evaluation, and serving the student."""

from collections.abc import Mapping
from dataclasses import dataclass

from understudy.plan.serving import SMALLER, Serving, serving
from understudy.plan.trace import Planned
from understudy.plan.weights import Weights, weights_of
from understudy.recipe import Recipe, degrees


@dataclass(frozen=True)
class RunRequirements:
    """Requirements in bytes."""

    models: Mapping[str, int]
    """Files of the models that stay in the store, by role."""
    evaluation: int
    """Weights of all models together, on each process of the evaluation."""
    serving: Serving
    """Of the student."""


def run_requirements(recipe: Recipe, distillation: Planned) -> RunRequirements:
    """The requirements of a run beside its trainings.

    Args:
        recipe: the run's.
        distillation: the student's training, with its teacher.
    """
    assert distillation.teacher is not None
    teacher, student = (
        weights_of(distillation.teacher, "teacher.model"),
        weights_of(distillation.model, "student.model"),
    )
    weights: dict[str, Weights] = {"teacher": teacher, "student": student}
    if recipe.student.control:
        weights["control"] = student
    measured = recipe.resources.by_job["evaluate"]
    shares = degrees(recipe.evaluate.strategy, measured.nodes, measured.processes).dp_shard
    precision = recipe.evaluate.precision
    return RunRequirements(
        models={role: model_weights.files for role, model_weights in weights.items()},
        evaluation=sum(model_weights.parameters for model_weights in weights.values()) // (shares * SMALLER[precision]),
        serving=serving(distillation.model, "student.model", precision),
    )
