"""A frozen linear layer in fewer bits: each rank rounds the rows that it keeps, some at a time, as it reads them.

Rows are rounded one by one, so they come out the same however the model is spread.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from understudy.models.linear import is_turned, linear_layers, tied
from understudy.models.parts import kept, kept_part

AT_A_TIME = 2**22
"""Numbers that are rounded at a time."""


class Rounded(nn.Module, ABC):
    """A linear layer of integers. It has no `weight`: code that reads one and does not call the layer fails aloud.

    Args:
        layer: with memory or without; what it is filled with comes later, from fill().
    """

    spares_last: ClassVar[bool]
    """Whether a model's last linear layer stays as it is, whose errors no other one makes up for."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        weight = layer.get_parameter("weight")
        self.rows, self.columns = weight.shape
        numbers, scales = self.empty(weight.device)
        self.numbers = nn.Parameter(numbers, requires_grad=False)
        self.scales = nn.Parameter(scales, requires_grad=False)
        self.bias = layer._parameters["bias"]
        self.is_turned = is_turned(layer)

    @abstractmethod
    def empty(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Memory for its integers and their scales, a row for each of the weight's."""

    @staticmethod
    @abstractmethod
    def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the weight, fp32 (n, columns), as integers and scales."""

    def fill(self, read: Callable[[int, int], Tensor]) -> None:
        """Round the rows that this rank keeps.

        Args:
            read: from the first row and the one behind the last to those rows, in any floating-point type.
        """
        own = kept_part(self.numbers)[0]
        numbers, scales = kept(self.numbers.detach()), kept(self.scales.detach())
        count = max(1, AT_A_TIME // self.columns)
        for first in range(own.start, own.stop, count):
            last = min(first + count, own.stop)
            place = slice(first - own.start, last - own.start)
            found, sizes = self.rounded(read(first, last).float())
            numbers[place].copy_(found)
            scales[place].copy_(sizes)


def in_fewer_bits(model: nn.Module, kind: type[Rounded], besides: Collection[str] = ()) -> nn.Module:
    """The same model, whose linear layers are of that kind; embeddings, norms, convolutions, a last layer that
    shares its weight with the embeddings, and layers with hooks stay as they are.

    Args:
        model: with memory or without; it is changed in place, and its layers have no weights yet.
        kind: what they become.
        besides: names of layers that stay, too.
    """
    shared, layers = tied(model), linear_layers(model)
    for name in list(layers)[: -1 if kind.spares_last else None]:
        layer = layers[name]
        if name not in besides and id(layer.get_parameter("weight")) not in shared and not _is_hooked(layer):
            model.set_submodule(name, kind(layer))
    return model


def _is_hooked(layer: nn.Module) -> bool:
    """Whether code of one's own changes what goes into it, or comes out: a new layer would not have it."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


@contextmanager
def seeming_plain(net: nn.Module, weight: Tensor) -> Iterator[None]:
    """Within it layers in fewer bits have a weight for code that would initialise it.

    Args:
        net: of which they are part.
        weight: the one that all of them show.
    """
    layers = [layer for layer in net.modules() if isinstance(layer, Rounded)]
    for layer in layers:
        layer.__dict__["weight"] = weight
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["weight"]


def kind_of_products(given: Tensor) -> torch.dtype:
    """The type that products with these inputs are computed in: autocast's, where it is on."""
    device = given.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else given.dtype
