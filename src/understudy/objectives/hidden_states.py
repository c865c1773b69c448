"""The objective `hidden_states`: the teacher's hidden states, from the student's through learned projections."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from understudy.errors import InputError
from understudy.models.layers import uniform_layers
from understudy.recipe.objectives import Requirements, TeacherObjective
from understudy.recipe.roles import STUDENT, TEACHER

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor, nn

    from understudy.models.outputs import Outputs, OutputShapes
    from understudy.objectives.batch import Batch
    from understudy.objectives.objective import Context, ModuleObjective

Layer = Annotated[int, Field(ge=0)]
Pair = tuple[Layer, Layer]


class HiddenStatesObjective(TeacherObjective):
    """Squared distance of hidden states, the student's projected to the teacher's width (Romero et al. 2015, FitNets;
    Jiao et al. 2020, TinyBERT).
    """

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"hidden_states"}),
        refuses={
            "pp": "hidden_states compares layers that stages (pp) have on different processes; use fsdp, tp or cp",
            "sequence_parallel": "hidden_states compares outputs of whole layers, of which each process has a part; "
            "leave sequence_parallel out",
        },
    )
    type: Literal["hidden_states"]
    layers: Literal["uniform", "last"] | Annotated[tuple[Pair, ...], Field(min_length=1)] = "uniform"
    """The compared layers: uniform (each of the student's, with the teacher's at the same share of the depth), last, or
    pairs [student's, teacher's], counted from 1; 0 is the embedding."""

    def build(self, context: "Context") -> "ModuleObjective":
        """Its formula, with a projection for each pair of layers, also where widths are equal, as in TinyBERT."""
        from torch import nn

        from understudy.objectives.objective import ModuleObjective

        (name,) = self.names(tuple(context.teachers))
        (teacher_index,), shapes = self.chosen(tuple(context.teachers)), context.teachers[name]
        pairs = self._pairs(len(context.student.hidden_states) - 1, len(shapes.hidden_states) - 1)
        projections = nn.ModuleList()
        for index, (student_layer, teacher_layer) in enumerate(pairs):
            student_positions, student_width = _shape(
                context.student, student_layer, STUDENT, f"{context.path}.layers[{index}]"
            )
            teacher_positions, teacher_width = _shape(shapes, teacher_layer, TEACHER, f"{context.path}.layers[{index}]")
            if student_positions != teacher_positions:
                raise InputError(
                    f"{context.path}: the student's layer {student_layer} has {student_positions} positions, and the "
                    f"teacher's layer {teacher_layer} has {teacher_positions}; compare models with the same number "
                    "(for images: of patches)"
                )
            projections.append(nn.Linear(student_width, teacher_width, bias=False))
        return ModuleObjective(partial(distance, pairs=pairs, chosen=teacher_index), projections=projections)

    def _pairs(self, student: int, teacher: int) -> tuple[Pair, ...]:
        """The pairs of layers of models of these depths."""
        if self.layers == "uniform":
            return tuple(enumerate(uniform_layers(student, teacher), 1))
        return ((student, teacher),) if self.layers == "last" else self.layers


def distance(
    student: "Outputs",
    teachers: "tuple[Outputs, ...]",
    batch: "Batch",
    projections: "nn.ModuleList",
    *,
    pairs: tuple[Pair, ...],
    chosen: int = 0,
) -> "Tensor":
    """The squared distance, averaged over the width and over pairs of layers, summed over positions with a target.

    An image or a text with a label counts as one target; its distance is averaged over its positions without padding.
    """
    import torch

    from understudy.objectives.fused import full_precision
    from understudy.objectives.positions import example_means

    distances = []
    for (student_layer, teacher_layer), projection in zip(pairs, projections, strict=True):
        projected = projection(student.hidden_states[student_layer])
        target = teachers[chosen].hidden_states[teacher_layer]
        kind = full_precision(projected.dtype)
        squared = (projected.to(kind) - target.to(kind)).square()
        by_position = batch.labels.ndim == projected.ndim - 1
        distances.append(squared.mean(-1) if by_position else example_means(squared, student.mask))
    return torch.stack(distances).mean(0).where(batch.has_target, 0).sum()


def _shape(model: "OutputShapes", layer: int, role: str, path: str) -> tuple[int, int]:
    """Positions and width of a layer's hidden state."""
    depth = len(model.hidden_states) - 1
    if layer > depth:
        raise InputError(f"{path}: the {role} has {depth} layers; {layer} is none of them")
    shape = model.hidden_states[layer]
    if len(shape) != 2:
        raise InputError(
            f"{path}: a hidden state of the {role} has the shape {tuple(shape)}, and not (positions, width); "
            "take a transformer, or remove this objective"
        )
    return shape[0], shape[1]


OBJECTIVE = HiddenStatesObjective
