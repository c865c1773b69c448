"""The objective `rkd`: how the teacher places the examples of a micro-batch relative to each other."""

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from understudy.recipe.objectives import Requirements, TeacherObjective, Weight
from understudy.recipe.roles import STUDENT, TEACHER

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor

    from understudy.models.outputs import Outputs
    from understudy.objectives.batch import Batch
    from understudy.objectives.objective import Context, ModuleObjective


class RelationalObjective(TeacherObjective):
    """Distances and angles between the examples of a micro-batch (Park et al. 2019, relational knowledge distillation).

    An example's embedding is the mean of its last hidden states. Relations do not depend on its width, so there is no
    projection. Each process compares the examples of its own micro-batches.
    """

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"hidden_states"}),
        refuses={
            "pp": "rkd compares last hidden states, which stages (pp) do not return; use fsdp or tp",
            "cp": "rkd compares whole sequences, of which each process has a part (cp); use fsdp or tp",
            "sequence_parallel": "rkd compares whole sequences, of which each process has a part; leave "
            "sequence_parallel out",
            "packing": "rkd compares whole sequences, which hold several documents; use packing: wrapped",
        },
        examples=3,
    )
    type: Literal["rkd"]
    distance_weight: Weight = 1.0
    angle_weight: Weight = 2.0

    @model_validator(mode="after")
    def _compares(self) -> "RelationalObjective":
        if not self.distance_weight and not self.angle_weight:
            raise ValueError("distance_weight and angle_weight are both 0; give one of them a value above 0")
        return self

    def build(self, context: "Context") -> "ModuleObjective":
        """Its formula, with the weights of both terms."""
        from understudy.objectives.embeddings import width_of
        from understudy.objectives.objective import ModuleObjective

        (name,) = self.names(tuple(context.teachers))
        (chosen,) = self.chosen(tuple(context.teachers))
        width_of(context.student, -1, STUDENT, context.path)
        width_of(context.teachers[name], -1, TEACHER, context.path)
        distance, angle = self.distance_weight, self.angle_weight
        return ModuleObjective(partial(difference, distance_weight=distance, angle_weight=angle, chosen=chosen))


def difference(
    student: "Outputs",
    teachers: "tuple[Outputs, ...]",
    batch: "Batch",
    *,
    distance_weight: float,
    angle_weight: float,
    chosen: int = 0,
) -> "Tensor":
    """The weighted sum of both terms, times the number of targets; 0 without a pair of examples with targets.

    Both are means of Huber losses with a threshold of 1: over the pairs of different examples of their distances, each
    model's divided by their mean (equations 5 to 7), and over the triples of different examples of the cosines of their
    angles (equations 8 to 10).
    """
    import torch

    from understudy.objectives.embeddings import embeddings, targets_by_example

    ours = embeddings(student.hidden_states[-1], student.mask, batch)
    theirs = embeddings(teachers[chosen].hidden_states[-1], student.mask, batch)
    targets = targets_by_example(batch)
    counted = targets > 0
    pairs = counted[:, None] & counted & ~torch.eye(len(counted), dtype=torch.bool, device=counted.device)
    with torch.autocast(ours.device.type, enabled=False):
        total = ours.new_zeros(())
        if distance_weight:
            first, second = (relative_distances(values, pairs) for values in (ours, theirs))
            total = total + distance_weight * mean_huber(first, second, pairs)
        if angle_weight:
            triples = pairs[:, :, None] & pairs[:, None, :] & pairs
            total = total + angle_weight * mean_huber(cosines(ours), cosines(theirs), triples)
    return total * targets.sum()


def relative_distances(embeddings: "Tensor", pairs: "Tensor") -> "Tensor":
    """Distances (n, n) between embeddings (n, width), divided by the mean over the pairs, boolean (n, n)."""
    _, distances = _differences(embeddings)
    mean = distances.where(pairs, 0).sum() / pairs.sum().clamp(min=1)
    return distances / mean.where(mean > 0, 1)


def cosines(embeddings: "Tensor") -> "Tensor":
    """The cosine (n, n, n) at each first embedding of the angle between the directions to the other two."""
    differences, distances = _differences(embeddings)
    directions = differences / distances.where(distances > 0, 1)[..., None]
    return directions @ directions.mT


def _differences(embeddings: "Tensor") -> "tuple[Tensor, Tensor]":
    """The vector (n, n, width) from each embedding to each other one, and its length (n, n), of gradient 0 at 0."""
    differences = embeddings - embeddings[:, None]
    squared = differences.square().sum(-1)
    return differences, squared.where(squared > 0, 1).sqrt().where(squared > 0, 0)


def mean_huber(student: "Tensor", teacher: "Tensor", counted: "Tensor") -> "Tensor":
    """The mean Huber loss of the counted entries; 0 if none counts."""
    from torch.nn import functional

    losses = functional.smooth_l1_loss(student, teacher, reduction="none")
    return losses.where(counted, 0).sum() / counted.sum().clamp(min=1)


OBJECTIVE = RelationalObjective
