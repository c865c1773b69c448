"""Detection of linear layers that use their weight for a matrix product only."""

from torch import nn

from understudy.models.build import tied_weights


def linear_layers(net: nn.Module) -> dict[str, nn.Module]:
    """A network's linear layers by name: nn.Linear, and transformers' Conv1D (GPT-2)."""
    return {name: module for name, module in net.named_modules() if _is_linear(module)}


def is_transposed(module: nn.Module) -> bool:
    """Whether the module is transformers' Conv1D (GPT-2), whose weight is transposed: (inputs, outputs)."""
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, Conv1D)


def tied(model: nn.Module) -> set[int]:
    """The ids of parameters that several layers share."""
    return {id(model.get_parameter(name)) for name in tied_weights(model)}


def _is_linear(module: nn.Module) -> bool:
    # Subclasses of nn.Linear do not count: code may read their weight without calling them, as nn.MultiheadAttention
    # does. A layer whose weight is computed from other parameters (weight_norm) does not count either.
    return (type(module) is nn.Linear or is_transposed(module)) and module._parameters.get("weight") is not None
