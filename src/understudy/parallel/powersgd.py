"""PowerSGD: gradients between replicas as products of two thin matrices (Vogels, Karimireddy & Jaggi 2019).

What a product misses, each replica adds to its own next gradient. These remainders differ by rank, and are in
checkpoints under each rank's own name. torch's hook begins one sum in the callback of another, in whichever thread that
ended in, and over gloo ranks met in different sums; here a bucket's sums are waited for, in the same order everywhere.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.checkpoint.stateful import Stateful


class PowerSGD(Stateful):
    """The communication hook of a DistributedDataParallel, and what it goes on with.

    Args:
        rank: of the approximation.
        group: the replicas.
    """

    def __init__(self, rank: int, group: dist.ProcessGroup) -> None:
        self._rank, self._group = rank, group
        self._kept: dict[str, Tensor] = {}

    def __call__(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Replace a bucket's gradients by the approximation of their mean."""
        buffer, number = bucket.buffer(), bucket.index()
        if (error := self._kept.get(f"{number}.error")) is not None:
            buffer.add_(error.to(buffer))
        own = buffer.clone()
        gradients = bucket.gradients()
        self._average(number, [one.view(len(one), -1) for one in gradients if self._saves(one)], gradients)
        self._kept[f"{number}.error"] = own - buffer
        for one, place in zip(gradients, _places(gradients), strict=True):
            if not self._saves(one):  # its mean was sent whole
                self._kept[f"{number}.error"][place] = 0
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(buffer)
        return done

    def _average(self, number: int, matrices: list[Tensor], gradients: Sequence[Tensor]) -> None:
        """Algorithm 1 of the paper, in place; gradients that are not approximated go along with its first sum."""
        rest = [one for one in gradients if not self._saves(one)]
        left = [matrix @ self._right(f"{number}.{at}", matrix) for at, matrix in enumerate(matrices)]
        self._sum([*left, *rest])
        for one in rest:
            one.div_(self._group.size())
        left = [torch.linalg.qr(one)[0] for one in left]
        right = [matrix.T @ one for matrix, one in zip(matrices, left, strict=True)]
        self._sum(right)
        for at, (matrix, one, other) in enumerate(zip(matrices, left, right, strict=True)):
            other.div_(self._group.size())
            torch.mm(one, other.T, out=matrix)
            self._kept[f"{number}.{at}"] = other

    def _right(self, name: str, matrix: Tensor) -> Tensor:
        """The factor to begin with: that of the step before, at first a drawn one, the same on all ranks."""
        if name not in self._kept:
            self._kept[name] = first_factor(name, matrix.shape[1], min(self._rank, *matrix.shape))
        return self._kept[name].to(matrix)

    def _sum(self, tensors: Sequence[Tensor]) -> None:
        """Of all replicas, in place, in one message."""
        if tensors:
            sent = torch.cat([one.flatten() for one in tensors])
            dist.all_reduce(sent, group=self._group)
            for one, place in zip(tensors, _places(tensors), strict=True):
                one.copy_(sent[place].view_as(one))

    def _saves(self, gradient: Tensor) -> bool:
        """Whether two factors are smaller than what they stand for."""
        rows = len(gradient) if gradient.ndim > 1 else 1
        columns = gradient.numel() // max(rows, 1)
        return (rows + columns) * min(self._rank, rows, columns) < gradient.numel()

    def state_dict(self) -> dict[str, Any]:
        """The remainders and right factors of this rank, copied: the next backward pass changes them."""
        return {name: tensor.clone() for name, tensor in self._kept.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put them back."""
        self._kept = dict(state_dict)


def first_factor(name: str, columns: int, rank: int) -> Tensor:
    """Drawn from a normal distribution, (columns, rank); it follows from bucket and place."""
    generator = torch.Generator().manual_seed(int.from_bytes(name.encode()))
    return torch.randn(columns, rank, generator=generator)


def _places(tensors: Sequence[Tensor]) -> list[slice]:
    ends = torch.tensor([0, *(one.numel() for one in tensors)]).cumsum(0).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]
