"""Loss and gradient of an objective in one pass over the logits.

For large logits on a GPU the pass is a kernel, compiled by torch.compile from the objective's formula. Otherwise, and
without a compiler, it runs over a few rows at a time, so that intermediate results stay in the processor's cache.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from understudy.objectives.batch import Batch
from understudy.parallel.compilation import has_compiler

Losses = Callable[[Tensor, tuple[Tensor, ...], Batch], tuple[Tensor, Tensor]]
"""From logits of the student and of each teacher, (n, K), to losses (n,) and their gradients with respect to the
student's."""
AT_A_TIME = {"cpu": 2**19, "cuda": 2**24}
"""Logits per block of rows without a compiler: 2 MiB in fp32 on a CPU, and enough to keep a GPU busy."""
WORTH_COMPILING = 2**24
"""Minimum logits for compiling, which takes seconds. An uncompiled pass over fewer takes less than a millisecond."""


def write_gradient(
    losses: Losses,
    student: Tensor,
    teachers: tuple[Tensor, ...],
    batch: Batch,
    gradient: Tensor,
    scale: float = 1.0,
) -> Tensor:
    """The sum of the losses, a scalar in fp32, or in the logits' type if that is wider.

    Args:
        losses: the objective's loss function.
        student: logits (n, K).
        teachers: logits (n, K) of each teacher.
        batch: the n positions.
        gradient: output tensor (n, K) in the logits' type; `student` itself if its values are not needed afterwards.
        scale: factor of the gradient, applied before it is rounded to that type.
    """
    if student.is_cuda and batch.mixed is None and student.numel() >= WORTH_COMPILING and has_compiler():
        torch._dynamo.maybe_mark_dynamic(student, 0)
        return compiled(losses)(student, teachers, batch, gradient, scale)
    total = torch.zeros((), device=student.device, dtype=full_precision(student.dtype))
    for rows in row_blocks(student):
        teacher_logits = tuple(logits[rows] for logits in teachers)
        total += _write_rows(losses, student[rows], teacher_logits, batch.part(rows), gradient[rows], scale)
    return total


def _write_rows(
    losses: Losses, student: Tensor, teachers: tuple[Tensor, ...], batch: Batch, gradient: Tensor, scale: float
) -> Tensor:
    teacher_logits = tuple(logits.to(full_precision(logits.dtype)) for logits in teachers)
    loss, computed = losses(student.to(full_precision(student.dtype)), teacher_logits, batch)
    gradient.copy_(computed if scale == 1.0 else computed * scale)
    return loss.sum()


def full_precision(kind: torch.dtype) -> torch.dtype:
    """The type that losses on logits of a type are computed in: fp32, or fp64 for fp64 logits."""
    return torch.promote_types(kind, torch.float32)


def row_blocks(logits: Tensor) -> Iterator[slice]:
    """Blocks of rows of logits (n, K), of about AT_A_TIME logits each."""
    rows, columns = logits.shape
    height = max(1, AT_A_TIME.get(logits.device.type, AT_A_TIME["cuda"]) // columns)
    return (slice(first, min(first + height, rows)) for first in range(0, rows, height))


@functools.cache
def compiled(losses: Losses, backend: str = "inductor") -> Callable[..., Tensor]:
    """The pass, compiled for any number of rows; a graph break is an error."""
    return torch.compile(functools.partial(_write_rows, losses), backend=backend, fullgraph=True)


class TotalLoss(torch.autograd.Function):
    """The sum of an objective's losses over rows of logits that are all in memory, as an autograd function."""

    @staticmethod
    def forward(ctx: Any, losses: Losses, student: Tensor, teachers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """The sum; the gradient is computed here as well."""
        gradient = torch.empty_like(student)
        total = write_gradient(losses, student, teachers, batch, gradient)
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the student's logits."""
        (logits_gradient,) = ctx.saved_tensors
        return None, logits_gradient * gradient, None, None
