"""A head that is a linear layer, for pieces of positions: cast once, and its gradient one product for each piece."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

AT_A_TIME = 2**25
"""Numbers of the weight's gradient that a product in half precision gives at a time, 128 MiB in fp32."""


class LinearHead:
    """Logits (n, vocabulary) of states (n, width), without autograd.

    Args:
        layer: of whose outputs the first `vocabulary` are logits.
        vocabulary: how many.
        kind: the type that products are computed in.
    """

    def __init__(self, layer: nn.Linear, vocabulary: int, kind: torch.dtype) -> None:
        with torch.no_grad():
            self._weight = layer.weight[:vocabulary].to(kind)
            self._bias = None if layer.bias is None else layer.bias[:vocabulary].to(kind)
        self._kind, self._vocabulary = kind, vocabulary
        self._trained = [parameter.requires_grad for parameter in layer.parameters()]

    def logits(self, states: Tensor) -> Tensor:
        """In the type of products."""
        with torch.autocast(states.device.type, enabled=False):
            return functional.linear(states.to(self._kind), self._weight, self._bias)

    def gradients(self, states: Tensor, gradient: Tensor, sums: Sequence[Tensor]) -> Tensor:
        """The gradient of the states; those of weight and bias are added to `sums`, as far as they are trained.

        Args:
            states: (n, width).
            gradient: of their logits.
            sums: (outputs, width) and (outputs,), in fp32; only for what is trained.
        """
        totals = iter(sums)
        with torch.autocast(states.device.type, enabled=False):
            if self._trained[0]:
                add_product(next(totals)[: self._vocabulary], gradient, states.to(self._kind))
            if self._bias is not None and self._trained[1]:
                total = next(totals)[: self._vocabulary]
                total += gradient.sum(0, dtype=total.dtype)
            return gradient @ self._weight


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left.T @ right to a sum, in place.

    Args:
        total: (m, k), in fp32 or wider.
        left: (n, m).
        right: (n, k), in the type of `left`.
    """
    if total.dtype == left.dtype:
        torch.addmm(total, left.T, right, out=total)
        return
    if left.is_cuda:  # one pass over the sum, which is not rounded to the products' type
        torch.addmm(total, left.T, right, out_dtype=total.dtype, out=total)
        return
    height = max(1, AT_A_TIME // right.shape[1])
    for rows in (slice(first, first + height) for first in range(0, total.shape[0], height)):
        total[rows] += left[:, rows].T @ right
