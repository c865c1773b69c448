"""Linear layers quantised to int8 with a scale for each row of the weight, without gradients.

A row's largest absolute value maps to 127 or -127, as in the vector-wise quantisation of Dettmers et al. 2022
(LLM.int8). Products are computed in the floating-point type of the inputs.
"""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from understudy.models.rounded import Rounded, kind_of_products

MOST = 127


class EightBits(Rounded):
    """A linear layer in int8."""

    spares_last: ClassVar[bool] = False

    def empty(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """int8 (rows, columns) and fp32 (rows,)."""
        numbers = torch.empty(self.rows, self.columns, dtype=torch.int8, device=device)
        return numbers, torch.empty(self.rows, device=device)

    @staticmethod
    def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows, fp32 (n, columns), as int8 of the same shape and fp32 scales (n,)."""
        # Scales are rounded to bf16, since fully_shard passes them on in the compute type. That changes them by at most
        # 1/257, and 127 by less than 0.5.
        scales = (rows.abs().amax(1) / MOST).bfloat16().float()
        scales = torch.where(scales == 0, 1.0, scales)
        return (rows / scales[:, None]).round().to(torch.int8), scales

    def forward(self, given: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs), without gradients."""
        numbers = self.numbers.to(kind_of_products(given))  # avoids autocast's copy of it in fp32
        if self.is_turned:  # the weight's rows are inputs
            return functional.linear(given * self.scales, numbers.T, self.bias)
        said = functional.linear(given, numbers).mul_(self.scales)
        return said if self.bias is None else said.add_(self.bias)
