"""Objectives: losses computed from outputs of a student and its teachers on a batch, summed over the targets.

Sums add up over ranks and micro-batches; the training loop divides by the number of targets. Each objective has its
own module, named in recipe/objectives.py, so that a change to one repeats only the trainings that use it. The module
has the recipe's section, which builds the objective from a Context, and its formula.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from understudy.models.outputs import Outputs, OutputShapes
from understudy.objectives.batch import Batch
from understudy.objectives.fused import Losses, TotalLoss
from understudy.objectives.schedule import StepWeights
from understudy.recipe import ObjectiveSection, Train
from understudy.recipe.objectives import Extra, TeacherObjective, WeightSchedule
from understudy.recipe.roles import STUDENT, TEACHER


@dataclass(frozen=True)
class Context:
    """The training that an objective is built for."""

    train: Train
    seed: int
    student: OutputShapes = field(default_factory=OutputShapes)
    teachers: Mapping[str, OutputShapes] = field(default_factory=lambda: {TEACHER: OutputShapes()})
    """Of each teacher by name. Shapes are those of the extras that objectives need, and of no other outputs."""
    path: str = f"{STUDENT}.distill"
    """The path of the objectives in the recipe, then of each one, for errors."""


class Objective(nn.Module, ABC):
    """One term of the loss.

    Its parameters (a projection between hidden states of two widths, say) are trained, checkpointed and sharded with
    the student's, and left out of the result.
    """

    extras: frozenset[Extra] = frozenset()
    """Outputs of both models that it needs besides the logits."""
    by_position: bool = False
    """Whether it is a sum over positions, each of which depends on its logits alone. It is then computed for some
    positions at a time, with logits (n, K), where the logits of all would be large."""

    def begin_step(self, step: int, steps: int, device: torch.device) -> None:
        """Prepare for a step, counted from 0, of a training of `steps` steps on a device."""
        del step, steps, device

    @abstractmethod
    def forward(self, student: Outputs, teachers: tuple[Outputs, ...], batch: Batch) -> Tensor:
        """The loss in nats, summed over the batch's targets: a scalar.

        Args:
            student: the student's outputs, with gradients.
            teachers: the outputs of the training's teachers in their order, without gradients.
            batch: the batch that all were computed on.
        """


class PositionObjective(Objective):
    """A sum over positions whose gradient with respect to the student's logits is computed in closed form.

    It bypasses autograd: loss and gradient take one pass over the logits. It has no parameters.

    Args:
        losses: the loss of each position, and its gradient; both 0 at positions without a target. It gets logits in
            fp32 or fp64 and does not change them in place. It is compiled with torch.compile, so no branch may depend
            on a tensor's values.
        weights: the scheduled weights in it.
    """

    by_position = True

    def __init__(self, losses: Losses, weights: StepWeights | None = None) -> None:
        super().__init__()
        self.losses, self._weights = losses, weights

    def begin_step(self, step: int, steps: int, device: torch.device) -> None:
        """Set the scheduled weights."""
        if self._weights:
            self._weights.begin_step(step, steps, device)

    def forward(self, student: Outputs, teachers: tuple[Outputs, ...], batch: Batch) -> Tensor:
        """The loss, summed over targets."""
        teacher_logits = tuple(outputs.logits.detach().flatten(0, -2) for outputs in teachers)
        total: Tensor = TotalLoss.apply(self.losses, student.logits.flatten(0, -2), teacher_logits, batch.by_position())
        return total


class ModuleObjective(Objective):
    """A loss with trained modules, whose gradients are computed by autograd.

    Args:
        loss: from outputs of student and teachers, batch, and the modules by their names, to the loss.
        modules: the trained modules.
    """

    def __init__(self, loss: Callable[..., Tensor], **modules: nn.Module) -> None:
        super().__init__()
        self._loss = loss
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, student: Outputs, teachers: tuple[Outputs, ...], batch: Batch) -> Tensor:
        """The loss, summed over targets."""
        return self._loss(student, teachers, batch, **dict(self.named_children()))


class WeightedSum(Objective):
    """A weighted sum of objectives."""

    def __init__(self, parts: Sequence[tuple[float | WeightSchedule, Objective]]) -> None:
        super().__init__()
        self._weights = StepWeights([weight for weight, _ in parts])
        self.parts = nn.ModuleList(objective for _, objective in parts)
        self.extras = frozenset().union(*(objective.extras for _, objective in parts))
        self.by_position = all(objective.by_position for _, objective in parts)
        self._has_parameters = [any(True for _ in objective.parameters()) for _, objective in parts]

    def begin_step(self, step: int, steps: int, device: torch.device) -> None:
        """Set the scheduled weights."""
        self._weights.begin_step(step, steps, device)

    def forward(self, student: Outputs, teachers: tuple[Outputs, ...], batch: Batch) -> Tensor:
        """The weighted sum of the parts' sums over targets, in the recipe's order.

        A part whose weight is 0 at this step is left out: 0 times an infinite loss is NaN. One with parameters is not,
        since processes wait for their gradients.
        """
        weights = list(zip(self._weights.values, self.parts, self._has_parameters, strict=True))
        used = [(weight, part) for weight, part, has_parameters in weights if weight or has_parameters]
        losses = [weight * part(student, teachers, batch) for weight, part in used or [weights[0][:2]]]
        total: Tensor = sum(losses[1:], start=losses[0])
        return total


class _Builds(Protocol):
    """A section in a module of OBJECTIVES."""

    def build(self, context: Context) -> Objective:
        """The objective that the section configures. It raises InputError if the models do not fit it."""


def extras_of(sections: Iterable[ObjectiveSection]) -> frozenset[Extra]:
    """Outputs besides logits that objectives need."""
    return frozenset().union(*(section.requirements.extras for section in sections))


def learns_from(section: ObjectiveSection, name: str, teachers: tuple[str, ...]) -> bool:
    """Whether an objective compares with a teacher of a training that has these."""
    return isinstance(section, TeacherObjective) and name in section.names(teachers)


def objective(sections: Sequence[ObjectiveSection], context: Context) -> Objective:
    """The objective that a section `distill` configures, its parameters drawn from the seed.

    Raises:
        InputError: the models do not fit it.
    """
    parts = []
    with _seeded(context.seed):
        for index, section in enumerate(sections):
            built = cast(_Builds, section).build(replace(context, path=f"{context.path}[{index}]"))
            built.extras = section.requirements.extras
            parts.append((section.weight, built))
    return weighted(parts)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw from the seed within the context: the same bits on all ranks, and the training's own draws continue after it
    as if there had been none.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which seeds GPUs as well
        yield


def weighted(parts: Sequence[tuple[float | WeightSchedule, Objective]]) -> Objective:
    """The weighted sum of objectives, with a gradient in closed form if all parts have one.

    Objectives of weight 0 are left out: 0 times an infinite loss is NaN.
    """
    nonzero = [(weight, part) for weight, part in parts if weight] or list(parts[:1])
    closed_forms = [part.losses for _, part in nonzero if isinstance(part, PositionObjective)]
    if len(closed_forms) < len(nonzero):
        return WeightedSum(nonzero)
    numbers = [weight for weight, _ in nonzero if not isinstance(weight, WeightSchedule)]
    if len(numbers) == len(nonzero):
        return PositionObjective(_sum(list(zip(numbers, closed_forms, strict=True))))
    weights = StepWeights([weight for weight, _ in nonzero])
    return PositionObjective(_scheduled_sum(weights, closed_forms), weights)


def _scheduled_sum(weights: StepWeights, parts: Sequence[Losses]) -> Losses:
    """The sum of losses, and of their gradients, with the weights of the current step."""

    def losses(student: Tensor, teachers: tuple[Tensor, ...], batch: Batch) -> tuple[Tensor, Tensor]:
        loss, gradient = (weights.weighted(0, values) for values in parts[0](student, teachers, batch))
        for number, part in enumerate(parts[1:], 1):
            part_loss, part_gradient = part(student, teachers, batch)
            loss = loss + weights.weighted(number, part_loss)
            gradient = gradient + weights.weighted(number, part_gradient)
        return loss, gradient

    return losses


def _sum(parts: Sequence[tuple[float, Losses]]) -> Losses:
    """The weighted sum of losses, and of their gradients."""
    (first_weight, first), *remaining = parts

    def losses(student: Tensor, teachers: tuple[Tensor, ...], batch: Batch) -> tuple[Tensor, Tensor]:
        loss, gradient = first(student, teachers, batch)
        if first_weight != 1:
            loss, gradient = loss * first_weight, gradient.mul_(first_weight)
        for weight, part in remaining:
            part_loss, part_gradient = part(student, teachers, batch)
            loss, gradient = loss.add(part_loss, alpha=weight), gradient.add_(part_gradient, alpha=weight)
        return loss, gradient

    return losses
