"""Linear layers in NF4: one of sixteen levels for each number of the weight, and a scale for each 64 of a row.

The levels are quantiles of the normal distribution, with 0 among them (Dettmers et al. 2023, QLoRA, appendix E), and
the largest number of a block becomes 1 or -1. Weights are made of them for one layer at a time, in the forward pass and
once more in the backward pass; gradients go through, to adapters of layers before. Scales are bf16, half of what the
paper's are before it rounds them a second time; blocks lie in rows, so that rows can be sharded.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from understudy.models.parts import kept
from understudy.models.rounded import Rounded, kind_of_products

LEVELS = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
BLOCK = 64


class FourBits(Rounded):
    """A linear layer in NF4, frozen, through which gradients go."""

    spares_last: ClassVar[bool] = True

    def empty(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """uint8 (rows, 32 blocks) with two levels in each, the first in the higher bits; bf16 (rows, blocks)."""
        blocks = -(-self.columns // BLOCK)
        numbers = torch.empty(self.rows, blocks * BLOCK // 2, dtype=torch.uint8, device=device)
        return numbers, torch.empty(self.rows, blocks, dtype=torch.bfloat16, device=device)

    @staticmethod
    def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows, fp32 (n, columns), as pairs of levels and scales; the last block of a row is filled up with zeros."""
        blocks = functional.pad(rows, (0, -rows.shape[1] % BLOCK)).view(len(rows), -1, BLOCK)
        scales = blocks.abs().amax(2).bfloat16()
        scales = torch.where(scales == 0, 1.0, scales)
        levels = torch.tensor(LEVELS)
        found = torch.bucketize(blocks / scales[:, :, None].float(), (levels[1:] + levels[:-1]) / 2)
        pairs = found.to(torch.uint8).view(len(rows), -1, 2)
        return pairs[:, :, 0] << 4 | pairs[:, :, 1], scales

    def forward(self, given: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        inputs = given.to(kind_of_products(given))
        said: Tensor = _Product.apply(inputs, self.numbers, self.scales, self.columns, self.is_turned)
        return said if self.bias is None else said + self.bias.to(said.dtype)

    def weight_kept(self) -> Tensor:
        """What the layer computes with, fp32: the rows that this rank keeps, (its rows, columns)."""
        return _weight(kept(self.numbers.detach()), kept(self.scales.detach()), self.columns, torch.float32)


class _Product(Function):
    """y = x W^T, or x W of a layer that is turned, with W made anew where it is needed."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, numbers: Tensor, scales: Tensor, columns: int, is_turned: bool) -> Tensor:
        ctx.save_for_backward(numbers, scales)
        ctx.columns, ctx.is_turned = columns, is_turned
        weight = _weight(numbers, scales, columns, given.dtype)
        return given @ (weight if is_turned else weight.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        numbers, scales = ctx.saved_tensors
        weight = _weight(numbers, scales, ctx.columns, gradient.dtype)
        return gradient @ (weight.T if ctx.is_turned else weight), None, None, None, None


def _weight(numbers: Tensor, scales: Tensor, columns: int, kind: torch.dtype) -> Tensor:
    """The weight's rows that there are integers and scales of."""
    levels = torch.tensor(LEVELS, dtype=kind, device=numbers.device)
    pairs = torch.stack([levels.repeat_interleave(len(LEVELS)), levels.repeat(len(LEVELS))], dim=1)
    found = functional.embedding(numbers.int(), pairs).view(*scales.shape, BLOCK)
    return found.mul_(scales[:, :, None].to(kind)).flatten(1)[:, :columns]
