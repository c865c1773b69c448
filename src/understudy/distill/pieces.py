"""A loss in pieces: the logits of all positions are never held at once.

At a vocabulary of 128k tokens a sequence's logits are many times as large as anything else that training holds. The
last layer, the objective and the gradients of both are computed for some positions at a time (as Liger Kernel does,
Hsu et al. 2024), in the forward pass; the backward pass only scales what was found.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from understudy.distill.objectives import Batch
from understudy.models.outputs import Outputs, States

Compare = Callable[[Outputs, Outputs | None, Batch], Tensor]
"""An objective that is a sum over positions, each from its own logits."""


def loss_in_pieces(objective: Compare, student: States, teacher: States | None, batch: Batch) -> Tensor:
    """The objective's loss, a scalar.

    Args:
        objective: what is computed.
        student: of the batch; gradients go to its states and to its head's parameters.
        teacher: of the same batch, without gradients.
        batch: inputs and labels, (B, L) or (B,).
    """
    inputs, labels = batch.inputs.flatten(0, batch.labels.ndim - 1), batch.labels.flatten()
    pieces, mixed = list(student.pieces()), batch.mixed
    states = student.states.flatten(0, -2)

    def loss(own: Tensor, piece: slice) -> Tensor:
        said = None
        if teacher:
            with torch.no_grad():
                said = Outputs(teacher.logits(piece))
        second = mixed._replace(labels=mixed.labels.flatten()[piece]) if mixed else None
        return objective(Outputs(student.head(own)), said, Batch(inputs[piece], labels[piece], second))

    if len(pieces) == 1:
        return loss(states, pieces[0])
    summed: Tensor = _Summed.apply(states, loss, pieces, *student.parameters)
    return summed


class _Summed(torch.autograd.Function):
    """The sum of the pieces' losses."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, loss: Callable[[Tensor, slice], Tensor], pieces: list[slice], *parameters: Tensor
    ) -> Tensor:
        """The sum, a scalar; the gradients are found here."""
        total = torch.zeros((), device=states.device)
        learned = [parameter for parameter in parameters if parameter.requires_grad]
        # In fp32, whatever the parameters are: many small numbers are added up.
        of_parameters = [torch.zeros_like(parameter, dtype=torch.float32) for parameter in learned]
        of_states = torch.empty_like(states)
        for piece in pieces:
            with torch.enable_grad():
                own = states[piece].detach().requires_grad_()
                part = loss(own, piece)
                found = torch.autograd.grad(part, (own, *learned))
            total += part.detach()
            of_states[piece] = found[0]
            for sofar, gradient in zip(of_parameters, found[1:], strict=True):
                sofar.add_(gradient)
        ctx.save_for_backward(of_states, *of_parameters)
        ctx.learned = [parameter.requires_grad for parameter in parameters]
        ctx.kinds = [parameter.dtype for parameter in learned]
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients, scaled; not in place, since schedules of a pipeline ask for some of them first."""
        of_states, *of_parameters = ctx.saved_tensors
        scaled = iter([(summed * gradient).to(kind) for summed, kind in zip(of_parameters, ctx.kinds, strict=True)])
        return (of_states * gradient, None, None, *(next(scaled) if has else None for has in ctx.learned))
