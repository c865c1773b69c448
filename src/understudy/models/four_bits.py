"""Linear layers quantised to NF4: one of sixteen levels per weight, and a scale per block of 64 weights of a row.

The levels are quantiles of the normal distribution, including 0 (Dettmers et al. 2023, QLoRA, appendix E), and a
block's largest absolute value maps to 1 or -1. Weights are dequantised one layer at a time, in the forward pass and
again in the backward pass, which computes gradients of the inputs, for adapters of earlier layers. Scales are bf16:
half the size of the paper's before its double quantisation. Blocks lie within rows, so that rows can be sharded.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from understudy.models.parts import local_tensor
from understudy.models.rounded import QuantizedLinear, product_dtype

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


class FourBits(QuantizedLinear):
    """A frozen linear layer in NF4, with gradients of its inputs."""

    skips_last_layer: ClassVar[bool] = True

    def empty(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """uint8 (rows, 32 x blocks), two levels each with the first in the higher bits, and bf16 (rows, blocks)."""
        blocks = -(-self.columns // BLOCK)
        numbers = torch.empty(self.rows, blocks * BLOCK // 2, dtype=torch.uint8, device=device)
        return numbers, torch.empty(self.rows, blocks, dtype=torch.bfloat16, device=device)

    @staticmethod
    def quantize(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows, fp32 (n, columns), as pairs of levels and scales; the last block of a row is padded with zeros."""
        blocks = functional.pad(rows, (0, -rows.shape[1] % BLOCK)).view(len(rows), -1, BLOCK)
        scales = blocks.abs().amax(2).bfloat16()
        scales = torch.where(scales == 0, 1.0, scales)
        levels = torch.tensor(LEVELS)
        indices = torch.bucketize(blocks / scales[:, :, None].float(), (levels[1:] + levels[:-1]) / 2)
        pairs = indices.to(torch.uint8).view(len(rows), -1, 2)
        return pairs[:, :, 0] << 4 | pairs[:, :, 1], scales

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        converted = inputs.to(product_dtype(inputs))
        outputs: Tensor = _Product.apply(converted, self.numbers, self.scales, self.columns, self.is_transposed)
        return outputs if self.bias is None else outputs + self.bias.to(outputs.dtype)

    def local_weight(self) -> Tensor:
        """The dequantised weight of this rank's rows, fp32 (n, columns)."""
        return _weight(
            local_tensor(self.numbers.detach()), local_tensor(self.scales.detach()), self.columns, torch.float32
        )


class _Product(Function):
    """y = x W^T, or x W for a transposed weight, with W dequantised each time."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, numbers: Tensor, scales: Tensor, columns: int, is_transposed: bool) -> Tensor:
        ctx.save_for_backward(numbers, scales)
        ctx.columns, ctx.is_transposed = columns, is_transposed
        weight = _weight(numbers, scales, columns, inputs.dtype)
        return inputs @ (weight if is_transposed else weight.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        numbers, scales = ctx.saved_tensors
        weight = _weight(numbers, scales, ctx.columns, gradient.dtype)
        return gradient @ (weight.T if ctx.is_transposed else weight), None, None, None, None


def _weight(numbers: Tensor, scales: Tensor, columns: int, dtype: torch.dtype) -> Tensor:
    """Dequantised rows of the weight, (n, columns) in type `dtype`."""
    levels = torch.tensor(LEVELS, dtype=dtype, device=numbers.device)
    pairs = torch.stack([levels.repeat_interleave(len(LEVELS)), levels.repeat(len(LEVELS))], dim=1)
    values = functional.embedding(numbers.int(), pairs).view(*scales.shape, BLOCK)
    return values.mul_(scales[:, :, None].to(dtype)).flatten(1)[:, :columns]
