"""Loss and gradient of an objective in one pass over the logits.

On a GPU the pass is a kernel that torch.compile makes of the objective's formula. Elsewhere, and where there is no
compiler, it is done for few rows at a time, whose intermediate results stay in the processor's cache.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from understudy.distill.batch import Batch
from understudy.parallel.compilation import has_compiler

Losses = Callable[[Tensor, Tensor | None, Batch], tuple[Tensor, Tensor]]
"""From logits of student and teacher, (n, K), to the losses (n,) and their gradients with respect to the student's."""
AT_A_TIME = {"cpu": 2**19, "cuda": 2**24}
"""Logits of the rows that are done at a time without a compiler: 2 MiB in fp32, and what keeps a GPU busy."""
WORTH_COMPILING = 2**24
"""Logits. Compiling takes seconds, and for fewer than this a pass takes less than a millisecond without."""


def write_gradient(
    losses: Losses, student: Tensor, teacher: Tensor | None, batch: Batch, gradient: Tensor, scale: float = 1.0
) -> Tensor:
    """The sum of the losses, a scalar in fp32, or in the logits' type if that is wider.

    Args:
        losses: the objective's.
        student: logits (n, K).
        teacher: logits (n, K), if the objective needs them.
        batch: of these n positions.
        gradient: where the gradient is written, (n, K) in the logits' type; these themselves, if nobody needs them.
        scale: what the gradient is multiplied by before it is rounded to that type.
    """
    if student.is_cuda and batch.mixed is None and student.numel() >= WORTH_COMPILING and has_compiler():
        torch._dynamo.maybe_mark_dynamic(student, 0)
        return compiled(losses)(student, teacher, batch, gradient, scale)
    total = torch.zeros((), device=student.device, dtype=full_precision(student.dtype))
    for rows in row_blocks(student):
        taught = None if teacher is None else teacher[rows]
        total += _of_rows(losses, student[rows], taught, batch.part(rows), gradient[rows], scale)
    return total


def _of_rows(
    losses: Losses, student: Tensor, teacher: Tensor | None, batch: Batch, gradient: Tensor, scale: float
) -> Tensor:
    taught = None if teacher is None else teacher.to(full_precision(teacher.dtype))
    loss, computed = losses(student.to(full_precision(student.dtype)), taught, batch)
    gradient.copy_(computed if scale == 1.0 else computed * scale)
    return loss.sum()


def full_precision(kind: torch.dtype) -> torch.dtype:
    """What logits of a type are compared in: fp32, or fp64 where they are."""
    return torch.promote_types(kind, torch.float32)


def row_blocks(logits: Tensor) -> Iterator[slice]:
    """Rows of logits (n, K), so many at a time as are done together."""
    rows, columns = logits.shape
    height = max(1, AT_A_TIME.get(logits.device.type, AT_A_TIME["cuda"]) // columns)
    return (slice(first, min(first + height, rows)) for first in range(0, rows, height))


@functools.cache
def compiled(losses: Losses, backend: str = "inductor") -> Callable[..., Tensor]:
    """The pass as one function for any number of rows; what cannot be compiled whole is an error."""
    return torch.compile(functools.partial(_of_rows, losses), backend=backend, fullgraph=True)


class TotalLoss(torch.autograd.Function):
    """The sum of an objective's losses over rows of logits that are all there, as autograd takes it."""

    @staticmethod
    def forward(ctx: Any, losses: Losses, student: Tensor, teacher: Tensor | None, batch: Batch) -> Tensor:
        """The sum; the gradient is computed here, too."""
        gradient = torch.empty_like(student)
        total = write_gradient(losses, student, teacher, batch, gradient)
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the student's logits."""
        (of_logits,) = ctx.saved_tensors
        return None, of_logits * gradient, None, None
