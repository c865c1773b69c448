"""Linear layers quantised to int8 with a scale for each row of the weight, without gradients.

A row's largest absolute value maps to 127 or -127, as in the vector-wise quantisation of Dettmers et al. 2022
(LLM.int8). Products are computed in the floating-point type of the inputs.
"""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from understudy.models.rounded import QuantizedLinear, product_dtype

LARGEST = 127


class EightBits(QuantizedLinear):
    """A linear layer in int8."""

    skips_last_layer: ClassVar[bool] = False

    def empty(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """int8 (rows, columns) and fp32 (rows,)."""
        numbers = torch.empty(self.rows, self.columns, dtype=torch.int8, device=device)
        return numbers, torch.empty(self.rows, device=device)

    @staticmethod
    def quantize(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows, fp32 (n, columns), as int8 of the same shape and fp32 scales (n,)."""
        # Scales are rounded to bf16, since fully_shard passes them on in the compute type. That changes them by at most
        # 1/257, and 127 by less than 0.5.
        scales = (rows.abs().amax(1) / LARGEST).bfloat16().float()
        scales = torch.where(scales == 0, 1.0, scales)
        return (rows / scales[:, None]).round().to(torch.int8), scales

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs), without gradients."""
        numbers = self.numbers.to(product_dtype(inputs))  # avoids autocast's copy of it in fp32
        if self.is_transposed:  # the weight's rows are inputs
            return functional.linear(inputs * self.scales, numbers.T, self.bias)
        outputs = functional.linear(inputs, numbers).mul_(self.scales)
        return outputs if self.bias is None else outputs.add_(self.bias)
