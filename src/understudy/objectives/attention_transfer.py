"""The objective `attention_transfer`: the positions that activate the teacher's layers."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from understudy.errors import InputError
from understudy.models.layers import uniform_layers
from understudy.objectives.hidden_states import Pair
from understudy.recipe.objectives import Requirements, TeacherObjective
from understudy.recipe.roles import STUDENT, TEACHER

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor

    from understudy.models.outputs import Outputs, OutputShapes
    from understudy.objectives.batch import Batch
    from understudy.objectives.objective import Context, ModuleObjective


class AttentionTransferObjective(TeacherObjective):
    """Squared distance of attention maps (Zagoruyko and Komodakis 2017, activation-based attention transfer).

    A layer's map has the sum of the squared channels of each pixel or position, divided by the map's norm. These are
    not the attention matrices of a transformer.
    """

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"hidden_states"}),
        refuses={
            "pp": "attention_transfer compares layers that stages (pp) have on different processes; use fsdp or tp",
            "cp": "attention_transfer compares maps of whole sequences, of which each process has a part (cp); use "
            "fsdp or tp",
            "sequence_parallel": "attention_transfer compares maps of whole sequences, of which each process has a "
            "part; leave sequence_parallel out",
            "packing": "attention_transfer compares maps of whole sequences, which hold several documents; use "
            "packing: wrapped",
        },
    )
    type: Literal["attention_transfer"]
    layers: Literal["uniform", "last"] | Annotated[tuple[Pair, ...], Field(min_length=1)] = "uniform"
    """The compared layers, as of hidden_states; the layers of a convolutional network are its stages."""

    def build(self, context: "Context") -> "ModuleObjective":
        """Its formula, for pairs of layers with maps of the same size."""
        from understudy.objectives.objective import ModuleObjective

        (name,) = self.names(tuple(context.teachers))
        (chosen,), teacher = self.chosen(tuple(context.teachers)), context.teachers[name]
        pairs = self._pairs(len(context.student.hidden_states) - 1, len(teacher.hidden_states) - 1)
        for index, (student_layer, teacher_layer) in enumerate(pairs):
            path = f"{context.path}.layers[{index}]"
            ours = _map_size(context.student, student_layer, STUDENT, path)
            theirs = _map_size(teacher, teacher_layer, TEACHER, path)
            if ours != theirs:
                raise InputError(
                    f"{path}: the map of the student's layer {student_layer} has the size {ours}, and that of the "
                    f"teacher's layer {teacher_layer} {theirs}; name pairs of layers with maps of the same size"
                )
        return ModuleObjective(partial(distance, pairs=pairs, chosen=chosen))

    def _pairs(self, student: int, teacher: int) -> tuple[Pair, ...]:
        """The pairs of layers of models of these depths."""
        if self.layers == "uniform":
            return tuple(enumerate(uniform_layers(student, teacher), 1))
        return ((student, teacher),) if self.layers == "last" else self.layers


def distance(
    student: "Outputs",
    teachers: "tuple[Outputs, ...]",
    batch: "Batch",
    *,
    pairs: tuple[Pair, ...],
    chosen: int = 0,
) -> "Tensor":
    """The squared distance of an example's maps, averaged over pairs of layers, once for each of its targets."""
    import torch

    from understudy.objectives.embeddings import targets_by_example

    distances = []
    for student_layer, teacher_layer in pairs:
        ours = attention_maps(student.hidden_states[student_layer], student.mask, batch)
        theirs = attention_maps(teachers[chosen].hidden_states[teacher_layer], student.mask, batch)
        distances.append((ours - theirs).square().sum(-1))
    return (torch.stack(distances).mean(0) * targets_by_example(batch)).sum()


def attention_maps(state: "Tensor", mask: "Tensor | None", batch: "Batch") -> "Tensor":
    """The sum of squares over the width, (B, positions), of norm 1; 0 at padding and positions without a target.

    Args:
        state: a hidden state, (B, L, width) or (B, channels, height, width of the image).
        mask: (B, L), 0 where a position is padding; None if there is none.
        batch: the examples.
    """
    from torch.nn import functional

    from understudy.objectives.embeddings import by_position, counted_positions
    from understudy.objectives.fused import full_precision

    states = by_position(state)
    energies = states.to(full_precision(state.dtype)).square().sum(-1)
    return functional.normalize(energies.where(counted_positions(states, mask, batch), 0), dim=-1)


def _map_size(model: "OutputShapes", layer: int, role: str, path: str) -> tuple[int, ...]:
    """(positions,) or (height, width) of a layer's map."""
    from understudy.objectives.embeddings import width_of

    depth = len(model.hidden_states) - 1
    if layer > depth:
        raise InputError(f"{path}: the {role} has {depth} layers; {layer} is none of them")
    width_of(model, layer, role, path)
    shape = model.hidden_states[layer]
    return tuple(shape[:1] if len(shape) == 2 else shape[1:])


OBJECTIVE = AttentionTransferObjective
