"""The objective `crd`: tell the teacher's embedding of an example from those of the others in a micro-batch."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from understudy.recipe.objectives import Requirements, TeacherObjective
from understudy.recipe.roles import STUDENT, TEACHER

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor, nn

    from understudy.models.outputs import Outputs
    from understudy.objectives.batch import Batch
    from understudy.objectives.objective import Context, ModuleObjective


class ContrastiveObjective(TeacherObjective):
    """InfoNCE between embeddings of student and teacher, with the other examples of the micro-batch as negatives.

    Contrastive representation distillation (Tian et al. 2020) without its memory bank of negatives: the loss is that of
    van den Oord et al. 2018, in both directions (as in CLIP, Radford et al. 2021). Both models' embeddings, means of
    their last hidden states, are projected to the same width and to length 1. Each process compares the examples of its
    own micro-batches.
    """

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"hidden_states"}),
        refuses={
            "pp": "crd compares last hidden states, which stages (pp) do not return; use fsdp or tp",
            "cp": "crd compares whole sequences, of which each process has a part (cp); use fsdp or tp",
            "sequence_parallel": "crd compares whole sequences, of which each process has a part; leave "
            "sequence_parallel out",
            "packing": "crd compares whole sequences, which hold several documents; use packing: wrapped",
        },
        examples=2,
    )
    type: Literal["crd"]
    temperature: Annotated[float, Field(gt=0)] = 0.07
    """Cosines are divided by it."""
    width: Annotated[int, Field(gt=0)] = 128
    """Of the projected embeddings."""

    def build(self, context: "Context") -> "ModuleObjective":
        """Its formula, with a projection for each model."""
        from torch import nn

        from understudy.objectives.embeddings import width_of
        from understudy.objectives.objective import ModuleObjective

        (name,) = self.names(tuple(context.teachers))
        (chosen,) = self.chosen(tuple(context.teachers))
        student_width = width_of(context.student, -1, STUDENT, context.path)
        teacher_width = width_of(context.teachers[name], -1, TEACHER, context.path)
        return ModuleObjective(
            partial(contrast, temperature=self.temperature, chosen=chosen),
            student_projection=nn.Linear(student_width, self.width),
            teacher_projection=nn.Linear(teacher_width, self.width),
        )


def contrast(
    student: "Outputs",
    teachers: "tuple[Outputs, ...]",
    batch: "Batch",
    student_projection: "nn.Module",
    teacher_projection: "nn.Module",
    *,
    temperature: float,
    chosen: int = 0,
) -> "Tensor":
    """The mean of both directions' cross-entropies of each example, once for each of its targets.

    One direction finds the teacher's embedding for the student's, the other the student's for the teacher's. Examples
    without a target are no negatives.
    """
    import torch
    from torch.nn import functional

    from understudy.objectives.embeddings import embeddings, targets_by_example
    from understudy.objectives.fused import full_precision

    ours = student_projection(embeddings(student.hidden_states[-1], student.mask, batch))
    theirs = teacher_projection(embeddings(teachers[chosen].hidden_states[-1], student.mask, batch))
    kind, targets = full_precision(ours.dtype), targets_by_example(batch)
    with torch.autocast(ours.device.type, enabled=False):
        first, second = (functional.normalize(projected.to(kind), dim=-1) for projected in (ours, theirs))
        similarities = first @ second.T / temperature
    itself = torch.eye(len(targets), dtype=torch.bool, device=targets.device)
    candidates = itself | (targets > 0)
    losses = [
        -functional.log_softmax(scores.masked_fill(~candidates, -torch.inf), dim=-1).diagonal()
        for scores in (similarities, similarities.T)
    ]
    return (torch.stack(losses).mean(0) * targets).sum()


OBJECTIVE = ContrastiveObjective
