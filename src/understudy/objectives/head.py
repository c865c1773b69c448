"""A linear head for pieces of positions: weights are cast once, and each piece adds one product to the gradient."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

AT_A_TIME = 2**25
"""Elements of the weight's gradient per half-precision product on a CPU: 128 MiB in fp32."""


class LinearHead:
    """Logits (n, vocabulary) of states (n, width), without autograd.

    Args:
        layer: the linear layer; its first `vocabulary` outputs are the logits.
        vocabulary: the number of logits.
        kind: the type that products are computed in.
    """

    def __init__(self, layer: nn.Linear, vocabulary: int, kind: torch.dtype) -> None:
        with torch.no_grad():
            self._weight = layer.weight[:vocabulary].to(kind)
            self._bias = None if layer.bias is None else layer.bias[:vocabulary].to(kind)
        self._kind, self._vocabulary = kind, vocabulary
        self._trained = [parameter.requires_grad for parameter in layer.parameters()]

    def logits(self, states: Tensor) -> Tensor:
        """Logits (n, vocabulary) of states (n, width), in `kind`."""
        with torch.autocast(states.device.type, enabled=False):
            return functional.linear(states.to(self._kind), self._weight, self._bias)

    def gradients(self, states: Tensor, gradient: Tensor, sums: Sequence[Tensor]) -> Tensor:
        """The gradient of the states. Those of weight and bias are added to `sums`, if they are trained.

        Args:
            states: (n, width).
            gradient: of the logits, (n, vocabulary).
            sums: (outputs, width) and (outputs,), in fp32 or wider; one for each trained parameter.
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
    """Add left.T @ right to `total`, in place.

    Args:
        total: (m, k), in fp32 or wider.
        left: (n, m).
        right: (n, k), in the type of `left`.
    """
    if total.dtype == left.dtype:
        torch.addmm(total, left.T, right, out=total)
        return
    if left.is_cuda:  # one pass over `total`; the product is not rounded to half precision first
        torch.addmm(total, left.T, right, out_dtype=total.dtype, out=total)
        return
    height = max(1, AT_A_TIME // right.shape[1])
    for rows in (slice(first, first + height) for first in range(0, total.shape[0], height)):
        total[rows] += left[:, rows].T @ right
