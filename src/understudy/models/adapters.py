"""LoRA: trained low-rank adapters of a frozen model's linear layers (Hu et al. 2022).

y = W x + alpha / rank * B A x. A is random, B starts at 0, and at the end B A is merged into W, so that the finished
model has its original names and shapes. An adapter is a submodule of its layer, called by a hook. The layer keeps its
class and the names of its weights, so files load as before, and sharding a block shards its adapters too.
"""

import hashlib
import math
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from understudy.errors import InputError
from understudy.models.four_bits import FourBits
from understudy.models.linear import is_transposed, linear_layers, tied
from understudy.models.parts import full_tensor, local_slices, local_tensor
from understudy.models.rounded import quantize_linear_layers
from understudy.models.weights import LazyTensor
from understudy.recipe import Lora

NAME = "lora"
"""The name of an adapter in its layer."""


class Adapter(nn.Module):
    """A low-rank addition to a linear layer's output: (..., inputs) to (..., outputs)."""

    def __init__(self, inputs: int, outputs: int, settings: Lora, device: torch.device) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.empty(settings.rank, inputs, device=device))
        self.b = nn.Parameter(torch.empty(outputs, settings.rank, device=device))
        self.scale = settings.alpha / settings.rank
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        """The addition to the layer's output."""
        return functional.linear(functional.linear(self.dropout(inputs), self.a), self.b) * self.scale

    def product(self) -> Tensor:
        """The addition to the weight, (outputs, inputs), in full on every rank."""
        return (full_tensor(self.b) @ full_tensor(self.a)).detach() * self.scale


def add_adapters(model: nn.Module, settings: Lora, section: str) -> None:
    """Freeze a model in place, and add adapters to the layers that the recipe names; draw_adapters() initialises them.

    Args:
        model: the full model, before it is sharded; its tensors may be without memory.
        settings: the recipe's section lora.
        section: the training section's path in the recipe, for errors.

    Raises:
        InputError: a name matches no suitable layer, a layer's weight is shared, or the model has BatchNorm.
    """
    net = model.get_submodule("net")
    linear, shared = linear_layers(net), tied(model)
    adapted = _select(settings.modules, list(linear), f"{section}.lora.modules")
    for name in adapted:
        if id(linear[name].get_parameter("weight")) in shared:
            raise InputError(f"{section}.lora.modules: the weight of {name} is another layer's too; leave it out")
    _check_frozen(net, section)
    model.requires_grad_(requires_grad=False)
    for name in _select(settings.whole, [name for name, _ in net.named_modules() if name], f"{section}.lora.whole"):
        net.get_submodule(name).requires_grad_()
    if settings.frozen_precision == "nf4":
        trained = {f"net.{name}" for name, layer in linear.items() if layer.get_parameter("weight").requires_grad}
        quantize_linear_layers(model, FourBits, excluded=trained)
    for name in adapted:
        weight, layer = linear[name].get_parameter("weight"), net.get_submodule(name)
        inputs, outputs = weight.shape if is_transposed(linear[name]) else reversed(weight.shape)
        layer.add_module(NAME, Adapter(inputs, outputs, settings, weight.device))
        layer.register_forward_hook(_add_update)


def _check_frozen(net: nn.Module, section: str) -> None:
    """Refuse BatchNorm, whose running statistics change although the weights are frozen."""
    for name, module in net.named_modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            raise InputError(
                f"{section}.lora: {name} keeps running means and variances, which training would change though the "
                "weights are frozen; take a model without BatchNorm, or leave lora out"
            )


def draw_adapters(model: nn.Module, seed: int) -> None:
    """Initialise adapters, with the same bits however the model is sharded.

    A is drawn like nn.Linear's weights, as in the authors' code. B is 0, so that adapters add nothing at first.
    """
    for name, _, adapter in adapters(model):
        digest = hashlib.blake2b(f"{seed} {name} {NAME}".encode(), digest_size=7).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest))
        drawn = torch.empty(adapter.a.shape)
        nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator)
        local_tensor(adapter.a.detach()).copy_(drawn[local_slices(adapter.a)])
        local_tensor(adapter.b.detach()).zero_()


def merged(model: nn.Module) -> dict[str, Tensor | LazyTensor]:
    """A model's state with adapters merged into its weights, under the original names and shapes.

    Weights are changed in place. Those of four-bit layers are dequantised, one at a time when they are written: the
    adapters were trained on these values. To be called on every rank.
    """
    replaced: set[str] = set()
    dequantized: dict[str, LazyTensor] = {}
    for name, layer, adapter in adapters(model):
        replaced |= {f"{name}.{NAME}.a", f"{name}.{NAME}.b"}
        if not isinstance(layer, FourBits):
            _merge(layer, adapter)
    for name, layer in model.named_modules():
        if isinstance(layer, FourBits):
            replaced |= {f"{name}.numbers", f"{name}.scales"}
            shape = torch.Size((layer.rows, layer.columns))
            dequantized[f"{name}.weight"] = LazyTensor(shape, torch.float32, partial(_merged_weight, layer))
    return {**{name: tensor for name, tensor in model.state_dict().items() if name not in replaced}, **dequantized}


def _merge(layer: nn.Module, adapter: Adapter) -> None:
    weight, update = layer.get_parameter("weight").detach(), _weight_update(layer, adapter)
    local_tensor(weight).add_(update[local_slices(weight)])


def _merged_weight(layer: FourBits) -> Tensor:
    """The dequantised weight of a four-bit layer, fp32, with its adapter if it has one, sharded like the layer."""
    weight, numbers = layer.local_weight(), layer.numbers.detach()
    adapter = layer._modules.get(NAME)
    if isinstance(adapter, Adapter):
        weight += _weight_update(layer, adapter)[local_slices(numbers)[0]]
    if not isinstance(numbers, DTensor):
        return weight
    size = torch.Size((layer.rows, layer.columns))
    return DTensor.from_local(
        weight.contiguous(), numbers.device_mesh, numbers.placements, shape=size, stride=(layer.columns, 1)
    )


def _weight_update(layer: nn.Module, adapter: Adapter) -> Tensor:
    """The full update of a layer's weight by its adapter, in the weight's shape."""
    return adapter.product().T if weight_is_transposed(layer) else adapter.product()


def weight_is_transposed(layer: nn.Module) -> bool:
    """Whether the weight of a layer with an adapter is (inputs, outputs)."""
    return layer.is_transposed if isinstance(layer, FourBits) else is_transposed(layer)


def adapters(model: nn.Module) -> Iterator[tuple[str, nn.Module, Adapter]]:
    """A model's adapters, each with the name of its layer and the layer."""
    for name, layer in model.named_modules():
        adapter = layer._modules.get(NAME)  # getattr() would be forwarded by another stage's placeholder
        if isinstance(adapter, Adapter):
            yield name, layer, adapter


def _add_update(layer: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    update: Tensor = layer.get_submodule(NAME)(arguments[0])
    return output + update


def _select(patterns: tuple[str, ...], names: list[str], setting: str) -> list[str]:
    """The names that match a pattern in full or by the part after a dot."""
    for pattern in patterns:
        if not any(_matches_pattern(name, pattern) for name in names):
            available = sorted({re.sub(r"\b\d+\b", "*", name) for name in names})
            raise InputError(f"{setting}: no layer is called {pattern}; the layers are {', '.join(available)}")
    return [name for name in names if any(_matches_pattern(name, pattern) for pattern in patterns)]


def _matches_pattern(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")
