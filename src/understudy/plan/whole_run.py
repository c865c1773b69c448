"""Requirements of a run beside its trainings: stored models, evaluation, and serving the student."""

from collections.abc import Mapping
from dataclasses import dataclass

from understudy.plan.serving import SMALLER, Serving, serving
from understudy.plan.trace import Planned
from understudy.plan.weights import Weights, weights_of
from understudy.recipe import Recipe, degrees


@dataclass(frozen=True)
class WholeRun:
    """Requirements in bytes."""

    models: Mapping[str, int]
    """Files of the models that stay in the store, by role."""
    evaluation: int
    """Weights of all models together, on each process of the evaluation."""
    serving: Serving
    """Of the student."""


def whole_run(recipe: Recipe, taught: Planned) -> WholeRun:
    """The requirements of a run beside its trainings.

    Args:
        recipe: the run's.
        taught: the student's training, with its teacher.
    """
    assert taught.teacher is not None
    teacher, student = weights_of(taught.teacher, "teacher.model"), weights_of(taught.model, "student.model")
    weights: dict[str, Weights] = {"teacher": teacher, "student": student}
    if recipe.student.control:
        weights["control"] = student
    measured = recipe.resources.evaluation
    shares = degrees(recipe.evaluate.strategy, measured.nodes, measured.processes).dp_shard
    precision = recipe.evaluate.precision
    return WholeRun(
        models={role: found.files for role, found in weights.items()},
        evaluation=sum(found.parameters for found in weights.values()) // (shares * SMALLER[precision]),
        serving=serving(taught.model, "student.model", precision),
    )
