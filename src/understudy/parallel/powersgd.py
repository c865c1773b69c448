"""PowerSGD: gradients between replicas as products of two thin matrices (Vogels, Karimireddy & Jaggi 2019).

Each replica adds the error of its approximation to its next gradient (error feedback). Errors differ by rank, and are
per-rank state in checkpoints. torch's hook starts one all-reduce in the callback of another, in whichever thread that
ended, and over gloo ranks met in different ones; here a bucket's all-reduces are awaited, in the same order everywhere.
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
    """A communication hook for DistributedDataParallel, with its state.

    Args:
        rank: of the approximation.
        group: the replicas.
    """

    def __init__(self, rank: int, group: dist.ProcessGroup) -> None:
        self._rank, self._group = rank, group
        self._state: dict[str, Tensor] = {}

    def __call__(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Replace a bucket's gradients by the approximation of their mean."""
        buffer, number = bucket.buffer(), bucket.index()
        if (error := self._state.get(f"{number}.error")) is not None:
            buffer.add_(error.to(buffer))
        uncompressed = buffer.clone()
        gradients = bucket.gradients()
        self._average(
            number, [gradient.view(len(gradient), -1) for gradient in gradients if self._saves(gradient)], gradients
        )
        self._state[f"{number}.error"] = uncompressed - buffer
        for gradient, position in zip(gradients, _positions(gradients), strict=True):
            if not self._saves(gradient):  # averaged uncompressed
                self._state[f"{number}.error"][position] = 0
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(buffer)
        return done

    def _average(self, number: int, matrices: list[Tensor], gradients: Sequence[Tensor]) -> None:
        """Algorithm 1 of the paper, in place; its first all-reduce includes the uncompressed gradients."""
        uncompressed = [tensor for tensor in gradients if not self._saves(tensor)]
        products = [matrix @ self._right(f"{number}.{index}", matrix) for index, matrix in enumerate(matrices)]
        self._sum([*products, *uncompressed])
        for tensor in uncompressed:
            tensor.div_(self._group.size())
        products = [torch.linalg.qr(tensor)[0] for tensor in products]
        right = [matrix.T @ tensor for matrix, tensor in zip(matrices, products, strict=True)]
        self._sum(right)
        for index, (matrix, tensor, factor) in enumerate(zip(matrices, products, right, strict=True)):
            factor.div_(self._group.size())
            torch.mm(tensor, factor.T, out=matrix)
            self._state[f"{number}.{index}"] = factor

    def _right(self, name: str, matrix: Tensor) -> Tensor:
        """The initial right factor: the previous step's, at first a random one, the same on all ranks."""
        if name not in self._state:
            self._state[name] = first_factor(name, matrix.shape[1], min(self._rank, *matrix.shape))
        return self._state[name].to(matrix)

    def _sum(self, tensors: Sequence[Tensor]) -> None:
        """All-reduce tensors in place, in one message."""
        if tensors:
            message = torch.cat([tensor.flatten() for tensor in tensors])
            dist.all_reduce(message, group=self._group)
            for tensor, position in zip(tensors, _positions(tensors), strict=True):
                tensor.copy_(message[position].view_as(tensor))

    def _saves(self, gradient: Tensor) -> bool:
        """Whether two factors are smaller than the gradient."""
        rows = len(gradient) if gradient.ndim > 1 else 1
        columns = gradient.numel() // max(rows, 1)
        return (rows + columns) * min(self._rank, rows, columns) < gradient.numel()

    def state_dict(self) -> dict[str, Any]:
        """This rank's errors and right factors, copied: the next backward pass changes them."""
        return {name: tensor.clone() for name, tensor in self._state.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state_dict()."""
        self._state = dict(state_dict)


def first_factor(name: str, columns: int, rank: int) -> Tensor:
    """A factor (columns, rank) from a normal distribution, seeded by its name (bucket and index)."""
    generator = torch.Generator().manual_seed(int.from_bytes(name.encode()))
    return torch.randn(columns, rank, generator=generator)


def _positions(tensors: Sequence[Tensor]) -> list[slice]:
    ends = torch.tensor([0, *(tensor.numel() for tensor in tensors)]).cumsum(0).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]
