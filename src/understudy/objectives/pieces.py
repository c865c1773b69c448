"""A loss computed in pieces, so that the logits of all positions are never in memory together.

With a vocabulary of 128k tokens, a sequence's logits are many times larger than any other tensor of a training. The
last layer, the objective and the gradients of both are computed for some positions at a time, in the forward pass
(as in Liger Kernel, Hsu et al. 2024). The backward pass only scales these gradients.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from understudy.models.outputs import Outputs, States
from understudy.objectives.batch import Batch
from understudy.objectives.fused import full_precision, write_gradient
from understudy.objectives.head import LinearHead
from understudy.objectives.objective import PositionObjective

Objective = Callable[[Outputs, tuple[Outputs, ...], Batch], Tensor]
"""An objective that is a sum over positions, each of which depends on its logits alone."""
Piece = Callable[[Tensor, slice, Sequence[Tensor]], tuple[Tensor, Tensor]]
"""From the states of some positions and their slice to the sum of their losses and the gradient of the states. The
gradients of the head's trained parameters are added to the tensors in the sequence."""
FP16_SCALE = 256.0
"""Factor of the logits' gradients in fp16, whose smallest number is 6e-8. A power of two."""


def loss_in_pieces(objective: Objective, student: States, teachers: Sequence[States], batch: Batch) -> Tensor:
    """The objective's loss, a scalar.

    Args:
        objective: a sum over positions.
        student: states and head; gradients go to the states and to the head's parameters.
        teachers: states and heads on the same batch, without gradients.
        batch: inputs and labels, (B, L) or (B,).
    """
    states, rows = student.states.flatten(0, -2), batch.by_position()
    scale, teacher_logits = 1.0, [_logits(teacher) for teacher in teachers]
    if isinstance(objective, PositionObjective):
        scale = FP16_SCALE if _products(states) is torch.float16 else 1.0
        gradients = _closed(objective, student, teacher_logits, rows, scale)
    else:
        pieces = list(student.pieces())
        if len(pieces) == 1:
            return objective(Outputs(student.head(states)), _outputs(teacher_logits, pieces[0]), rows)
        gradients = _by_autograd(objective, student, teacher_logits, rows)
    total: Tensor = _Summed.apply(states, gradients, student.pieces(), scale, *student.parameters)
    return total


def _products(states: Tensor) -> torch.dtype:
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


Logits = Callable[[slice], Tensor]
"""From a piece to a teacher's logits (n, K)."""


def _logits(teacher: States) -> Logits:
    """A function from a piece to the teacher's logits; the head is cast once."""
    head = LinearHead(teacher.linear, teacher.vocabulary, _products(teacher.states)) if teacher.linear else None
    states = teacher.states.flatten(0, -2)

    def logits(piece: slice) -> Tensor:
        with torch.no_grad():
            return head.logits(states[piece]) if head else teacher.head(states[piece])

    return logits


def _closed(
    objective: PositionObjective,
    student: States,
    teacher_logits: Sequence[Logits],
    rows: Batch,
    scale: float,
) -> Piece:
    """The piece function of an objective with a gradient in closed form."""
    linear = student.linear
    head = LinearHead(linear, student.vocabulary, _products(student.states)) if linear else None
    trained = [parameter for parameter in student.parameters if parameter.requires_grad]

    def loss(logits: Tensor, piece: slice, gradient: Tensor) -> Tensor:
        with torch.no_grad():
            teacher_values = tuple(logits_of(piece) for logits_of in teacher_logits)
            return write_gradient(objective.losses, logits, teacher_values, rows.part(piece), gradient, scale)

    def through_linear(states: Tensor, piece: slice, sums: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        assert head is not None
        piece_states = states.detach()
        logits = head.logits(piece_states)
        total = loss(logits, piece, logits)
        return total, head.gradients(piece_states, logits, sums)

    def through_head(states: Tensor, piece: slice, sums: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            piece_states = states.detach().requires_grad_()
            logits = student.head(piece_states)
        gradient = torch.empty_like(logits)
        total = loss(logits.detach(), piece, gradient)
        states_gradient, *head_gradients = torch.autograd.grad(logits, (piece_states, *trained), gradient)
        _add(sums, head_gradients)
        return total, states_gradient

    return through_linear if head else through_head


def _by_autograd(objective: Objective, student: States, teacher_logits: Sequence[Logits], rows: Batch) -> Piece:
    """The piece function of an objective without a gradient in closed form."""
    trained = [parameter for parameter in student.parameters if parameter.requires_grad]

    def gradients(states: Tensor, piece: slice, sums: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        teacher_outputs = _outputs(teacher_logits, piece)
        with torch.enable_grad():
            piece_states = states.detach().requires_grad_()
            loss = objective(Outputs(student.head(piece_states)), teacher_outputs, rows.part(piece))
            states_gradient, *head_gradients = torch.autograd.grad(loss, (piece_states, *trained))
        _add(sums, head_gradients)
        return loss.detach(), states_gradient

    return gradients


def _outputs(teacher_logits: Sequence[Logits], piece: slice) -> tuple[Outputs, ...]:
    return tuple(Outputs(logits_of(piece)) for logits_of in teacher_logits)


def _add(sums: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    for total, gradient in zip(sums, gradients, strict=True):
        total.add_(gradient)


class _Summed(torch.autograd.Function):
    """The sum of the pieces' losses."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, gradients: Piece, pieces: Iterable[slice], scale: float, *parameters: nn.Parameter
    ) -> Tensor:
        """The sum, a scalar; the gradients are computed here, multiplied by `scale`."""
        total = torch.zeros((), device=states.device, dtype=full_precision(states.dtype))
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        # In fp32 at least, whatever the parameters' type: the sums have many small terms.
        sums = [torch.zeros_like(parameter, dtype=full_precision(parameter.dtype)) for parameter in trained]
        states_gradient = torch.empty_like(states)
        for piece in pieces:
            loss, states_gradient[piece] = gradients(states[piece], piece, sums)
            total += loss
        ctx.save_for_backward(states_gradient, *sums)
        ctx.trained = [parameter.requires_grad for parameter in parameters]
        ctx.kinds, ctx.scale = [parameter.dtype for parameter in trained], scale
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The scaled gradients; not in place, since pipeline schedules may request some of them first."""
        states_gradient, *sums = ctx.saved_tensors
        factor = gradient / ctx.scale
        scaled = iter([(total * factor).to(kind) for total, kind in zip(sums, ctx.kinds, strict=True)])
        return (
            states_gradient * factor,
            None,
            None,
            None,
            *(next(scaled) if is_trained else None for is_trained in ctx.trained),
        )
