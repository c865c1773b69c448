"""The objective `cosine`: the direction of the teacher's last hidden states, at each position."""

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from understudy.errors import InputError
from understudy.recipe.objectives import Requirements, TeacherObjective
from understudy.recipe.roles import STUDENT, TEACHER

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor, nn

    from understudy.models.outputs import Outputs, OutputShapes
    from understudy.objectives.batch import Batch
    from understudy.objectives.objective import Context, ModuleObjective


class CosineObjective(TeacherObjective):
    """1 - cosine of the last hidden states of student and teacher (Sanh et al. 2019, DistilBERT)."""

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"hidden_states"}),
        refuses={
            "pp": "cosine compares last hidden states, which stages (pp) do not return; use fsdp, tp or cp",
            "sequence_parallel": "cosine compares the last hidden states, of which each process has a part; leave "
            "sequence_parallel out",
        },
    )
    type: Literal["cosine"]

    def build(self, context: "Context") -> "ModuleObjective":
        """Its formula, with a projection to the teacher's width if the student's is another one."""
        from torch import nn

        from understudy.objectives.objective import ModuleObjective

        (name,) = self.names(tuple(context.teachers))
        (chosen,) = self.chosen(tuple(context.teachers))
        student_positions, student_width = _last(context.student, STUDENT, context.path)
        teacher_positions, teacher_width = _last(context.teachers[name], TEACHER, context.path)
        if student_positions != teacher_positions:
            raise InputError(
                f"{context.path}: the student's last hidden state has {student_positions} positions, and the teacher's "
                f"{teacher_positions}; compare models with the same number (for images: of patches)"
            )
        is_as_wide = student_width == teacher_width
        projection = nn.Identity() if is_as_wide else nn.Linear(student_width, teacher_width, bias=False)
        return ModuleObjective(partial(distance, chosen=chosen), projection=projection)


def distance(
    student: "Outputs", teachers: "tuple[Outputs, ...]", batch: "Batch", projection: "nn.Module", *, chosen: int = 0
) -> "Tensor":
    """1 - cosine, summed over positions with a target.

    An image or a text with a label counts as one target; its distance is averaged over its positions without padding.
    """
    from torch.nn import functional

    from understudy.objectives.fused import full_precision
    from understudy.objectives.positions import example_means

    projected, target = projection(student.hidden_states[-1]), teachers[chosen].hidden_states[-1]
    kind = full_precision(projected.dtype)
    distances = 1 - functional.cosine_similarity(projected.to(kind), target.to(kind), dim=-1)
    if distances.ndim > batch.labels.ndim:
        distances = example_means(distances, student.mask)
    return distances.where(batch.has_target, 0).sum()


def _last(model: "OutputShapes", role: str, path: str) -> tuple[int, int]:
    """Positions and width of the last hidden state."""
    shape = model.hidden_states[-1]
    if len(shape) != 2:
        raise InputError(
            f"{path}: the last hidden state of the {role} has the shape {tuple(shape)}, and not (positions, width); "
            "take a transformer, or remove this objective"
        )
    return shape[0], shape[1]


OBJECTIVE = CosineObjective
