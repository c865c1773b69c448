"""The loss and closed-form gradient of one objective on logits, as a training computes them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from understudy.models.outputs import OutputShapes
from understudy.objectives.batch import Batch
from understudy.objectives.fused import Losses, write_gradient
from understudy.objectives.objective import Context, PositionObjective, objective
from understudy.recipe import ObjectiveSection, Train
from understudy.recipe.objectives import load

ONE = {"teacher": OutputShapes()}


def section(kind: str, **keys: object) -> ObjectiveSection:
    return load(kind).model_validate({"type": kind, **keys})


def losses(chosen: ObjectiveSection, teachers: Mapping[str, OutputShapes] = ONE, smoothing: float = 0.0) -> Losses:
    context = Context(Train(steps=1, label_smoothing=smoothing), seed=0, teachers=teachers)
    built = objective((chosen,), context)
    assert isinstance(built, PositionObjective)
    return built.losses


def evaluated(chosen: ObjectiveSection, student: Tensor, teacher: Tensor, labels: Tensor) -> tuple[float, Tensor]:
    """The loss, and the gradient of the student's logits (n, K)."""
    gradient = torch.empty_like(student)
    total = write_gradient(losses(chosen), student, (teacher,), Batch(labels, labels), gradient)
    return total.item(), gradient
