"""Frozen quantised linear layers: each rank quantises its rows of the weight, some at a time, while reading them.

Rows are quantised independently, so the result is the same however the model is sharded.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from understudy.models.linear import is_transposed, linear_layers, tied
from understudy.models.parts import local_slices, local_tensor

AT_A_TIME = 2**22
"""Weights that are quantised at a time."""


class QuantizedLinear(nn.Module, ABC):
    """A quantised linear layer. It has no `weight`: code that reads one instead of calling the layer fails.

    Args:
        layer: the layer to replace, with memory or without; fill() sets the weights later.
    """

    skips_last_layer: ClassVar[bool]
    """Whether a model's last linear layer is not quantised, since no later layer compensates for its errors."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        weight = layer.get_parameter("weight")
        self.rows, self.columns = weight.shape
        numbers, scales = self.empty(weight.device)
        self.numbers = nn.Parameter(numbers, requires_grad=False)
        self.scales = nn.Parameter(scales, requires_grad=False)
        self.bias = layer._parameters["bias"]
        self.is_transposed = is_transposed(layer)

    @abstractmethod
    def empty(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Uninitialised integers and scales, with a row for each row of the weight."""

    @staticmethod
    @abstractmethod
    def quantize(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the weight, fp32 (n, columns), quantised to integers and scales."""

    def fill(self, read: Callable[[int, int], Tensor]) -> None:
        """Quantise this rank's rows of the weight.

        Args:
            read: returns rows first to last - 1 of the weight, in any floating-point type.
        """
        local_rows = local_slices(self.numbers)[0]
        numbers, scales = local_tensor(self.numbers.detach()), local_tensor(self.scales.detach())
        count = max(1, AT_A_TIME // self.columns)
        for first in range(local_rows.start, local_rows.stop, count):
            last = min(first + count, local_rows.stop)
            rows = slice(first - local_rows.start, last - local_rows.start)
            values, row_scales = self.quantize(read(first, last).float())
            numbers[rows].copy_(values)
            scales[rows].copy_(row_scales)


def quantize_linear_layers(
    model: nn.Module, layer_class: type[QuantizedLinear], excluded: Collection[str] = ()
) -> nn.Module:
    """Replace a model's linear layers by quantised ones. Embeddings, norms, convolutions, a last layer that shares its
    weight with the embeddings, and layers with hooks stay as they are.

    Args:
        model: with memory or without; it is changed in place, and the new layers have no weights yet.
        layer_class: the class of the new layers.
        excluded: names of further layers to leave out.
    """
    shared, layers = tied(model), linear_layers(model)
    for name in list(layers)[: -1 if layer_class.skips_last_layer else None]:
        layer = layers[name]
        if name not in excluded and id(layer.get_parameter("weight")) not in shared and not _is_hooked(layer):
            model.set_submodule(name, layer_class(layer))
    return model


def _is_hooked(layer: nn.Module) -> bool:
    """Whether hooks change the layer's inputs or outputs; a new layer would lose them."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


@contextmanager
def placeholder_weights(net: nn.Module, weight: Tensor) -> Iterator[None]:
    """Give quantised layers a `weight` within the context, for initialisation code that reads one.

    Args:
        net: the network with these layers.
        weight: the same tensor for all of them.
    """
    layers = [layer for layer in net.modules() if isinstance(layer, QuantizedLinear)]
    for layer in layers:
        layer.__dict__["weight"] = weight
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["weight"]


def product_dtype(inputs: Tensor) -> torch.dtype:
    """The type that products with these inputs are computed in: autocast's if it is enabled, otherwise the inputs'."""
    device = inputs.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else inputs.dtype
