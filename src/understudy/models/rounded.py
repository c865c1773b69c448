"""Frozen quantised linear layers: each rank quantises its rows of the weight, some at a time, while reading them.

Rows are quantised independently, so the result is the same however the model is sharded.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from understudy.models.linear import is_turned, linear_layers, tied
from understudy.models.parts import local_slices, local_tensor

AT_A_TIME = 2**22
"""Weights that are quantised at a time."""


class Rounded(nn.Module, ABC):
    """A quantised linear layer. It has no `weight`, so that code which reads one instead of calling the layer fails.

    Args:
        layer: the layer to replace, with memory or without; fill() sets the weights later.
    """

    spares_last: ClassVar[bool]
    """Whether a model's last linear layer is not quantised, since no later layer compensates for its errors."""

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
        """Uninitialised integers and scales, with a row for each row of the weight."""

    @staticmethod
    @abstractmethod
    def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the weight, fp32 (n, columns), quantised to integers and scales."""

    def fill(self, read: Callable[[int, int], Tensor]) -> None:
        """Quantise this rank's rows of the weight.

        Args:
            read: returns rows first to last - 1 of the weight, in any floating-point type.
        """
        own = local_slices(self.numbers)[0]
        numbers, scales = local_tensor(self.numbers.detach()), local_tensor(self.scales.detach())
        count = max(1, AT_A_TIME // self.columns)
        for first in range(own.start, own.stop, count):
            last = min(first + count, own.stop)
            place = slice(first - own.start, last - own.start)
            found, sizes = self.rounded(read(first, last).float())
            numbers[place].copy_(found)
            scales[place].copy_(sizes)


def in_fewer_bits(model: nn.Module, kind: type[Rounded], besides: Collection[str] = ()) -> nn.Module:
    """Replace a model's linear layers by quantised ones. Embeddings, norms, convolutions, a last layer that shares its
    weight with the embeddings, and layers with hooks stay as they are.

    Args:
        model: with memory or without; it is changed in place, and the new layers have no weights yet.
        kind: the class of the new layers.
        besides: names of further layers to leave out.
    """
    shared, layers = tied(model), linear_layers(model)
    for name in list(layers)[: -1 if kind.spares_last else None]:
        layer = layers[name]
        if name not in besides and id(layer.get_parameter("weight")) not in shared and not _is_hooked(layer):
            model.set_submodule(name, kind(layer))
    return model


def _is_hooked(layer: nn.Module) -> bool:
    """Whether hooks change the layer's inputs or outputs; a new layer would lose them."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


@contextmanager
def seeming_plain(net: nn.Module, weight: Tensor) -> Iterator[None]:
    """Give quantised layers a `weight` within the context, for initialisation code that reads one.

    Args:
        net: the network with these layers.
        weight: the tensor that stands for the weight of all of them.
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
    """The type that products with these inputs are computed in: autocast's if it is enabled, otherwise the inputs'."""
    device = given.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else given.dtype
