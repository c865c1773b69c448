"""A model that is only asked, with the weights of its linear layers in eight bits and a scale for each row of them.

The largest number of a row becomes 127 or -127, as in the vector-wise rounding of Dettmers et al. 2022 (LLM.int8);
products are computed in the floating-point type of the inputs. Rows are rounded one by one, so each rank rounds those
that it keeps, and they come out the same however the model is spread.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.models.linear import is_turned, linear_layers, tied
from understudy.models.parts import kept, kept_part

MOST = 127
AT_A_TIME = 2**22
"""Numbers that are rounded at a time."""


class EightBits(nn.Module):
    """A linear layer of integers. It has no `weight`: code that reads one and does not call the layer fails aloud.

    Args:
        layer: with memory or without; what it is filled with comes later, from fill().
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        weight = layer.get_parameter("weight")
        numbers = torch.empty(weight.shape, dtype=torch.int8, device=weight.device)
        scales = torch.empty(len(weight), device=weight.device)
        self.numbers = nn.Parameter(numbers, requires_grad=False)
        self.scales = nn.Parameter(scales, requires_grad=False)
        self.bias = layer._parameters["bias"]
        self._is_turned = is_turned(layer)

    def fill(self, read: Callable[[int, int], Tensor]) -> None:
        """Round the rows that this rank keeps, some at a time.

        Args:
            read: from the first row and the one behind the last to those rows, in any floating-point type.
        """
        own, columns = kept_part(self.numbers)[0], self.numbers.shape[1]
        numbers, scales = kept(self.numbers.detach()), kept(self.scales.detach())
        count = max(1, AT_A_TIME // columns)
        for first in range(own.start, own.stop, count):
            last = min(first + count, own.stop)
            place = slice(first - own.start, last - own.start)
            found, sizes = rounded(read(first, last).float())
            numbers[place].copy_(found)
            scales[place].copy_(sizes)

    def forward(self, given: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs), without gradients."""
        device = given.device.type  # autocast would have a copy of the weight in fp32 first
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else given.dtype
        numbers = self.numbers.to(kind)
        if self._is_turned:  # its rows are inputs
            return functional.linear(given * self.scales, numbers.T, self.bias)
        said = functional.linear(given, numbers).mul_(self.scales)
        return said if self.bias is None else said.add_(self.bias)


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows, fp32 (n, columns), as int8 of the same shape and fp32 scales (n,)."""
    # Numbers of bf16: fully_shard hands scales on in the type that is computed in. They are off by a 257th at most,
    # and 127 by less than a half.
    scales = (rows.abs().amax(1) / MOST).bfloat16().float()
    scales = torch.where(scales == 0, 1.0, scales)
    return (rows / scales[:, None]).round().to(torch.int8), scales


def in_eight_bits(model: nn.Module) -> nn.Module:
    """The same model, whose linear layers are EightBits; embeddings, norms, convolutions, and a last layer that shares
    its weight with the embeddings, stay as they are.

    Args:
        model: with memory or without; it is changed in place, and its layers have no weights yet.
    """
    shared = tied(model)
    for name, layer in linear_layers(model).items():
        if id(layer.get_parameter("weight")) not in shared:
            model.set_submodule(name, EightBits(layer))
    return model
