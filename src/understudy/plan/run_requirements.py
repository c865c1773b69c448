"""Requirements of a run beside its trainings: stored models, evaluation, and serving the student."""

from collections.abc import Mapping
from dataclasses import dataclass

from understudy.plan.job import descriptions
from understudy.plan.serving import SMALLER, Serving, serving
from understudy.plan.weights import weights_of
from understudy.recipe import Recipe, degrees
from understudy.recipe.roles import CONTROL, STUDENT, section_of


@dataclass(frozen=True)
class RunRequirements:
    """Requirements in bytes."""

    models: Mapping[str, int]
    """Files of the models that stay in the store, by role."""
    evaluation: int
    """Weights of all models together, on each process of the evaluation."""
    serving: Serving
    """Of the student."""


def run_requirements(recipe: Recipe) -> RunRequirements:
    """The requirements of a run beside its trainings.

    Raises:
        InputError: a model is invalid, or its files are not available.
    """
    described = descriptions(recipe)
    roles = (*recipe.all_teachers, STUDENT, *((CONTROL,) if recipe.student.control else ()))
    weights = {role: weights_of(described[section_of(role)], section_of(role)) for role in roles}
    measured = recipe.resources.evaluation
    shares = degrees(recipe.evaluate.strategy, measured.nodes, measured.processes).dp_shard
    precision = recipe.evaluate.precision
    return RunRequirements(
        models={role: model_weights.files for role, model_weights in weights.items()},
        evaluation=sum(model_weights.parameters for model_weights in weights.values()) // (shares * SMALLER[precision]),
        serving=serving(described[section_of(STUDENT)], section_of(STUDENT), precision),
    )
