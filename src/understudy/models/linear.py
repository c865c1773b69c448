"""Which modules of a network are linear layers, whose weight is used in one way: a product of matrices."""

from torch import nn

from understudy.models.build import tied_weights


def linear_layers(net: nn.Module) -> dict[str, nn.Module]:
    """A network's linear layers by name, of torch and of GPT-2."""
    return {name: module for name, module in net.named_modules() if _is_linear(module)}


def is_turned(module: nn.Module) -> bool:
    """Whether it is GPT-2's linear layer, whose weight is (inputs, outputs)."""
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, Conv1D)


def tied(model: nn.Module) -> set[int]:
    """The ids of parameters that several layers have."""
    return {id(model.get_parameter(name)) for name in tied_weights(model)}


def _is_linear(module: nn.Module) -> bool:
    # Its subclasses may be read without being called, as that of nn.MultiheadAttention is. Where the weight is made of
    # other parameters (weight_norm), it is none.
    return (type(module) is nn.Linear or is_turned(module)) and module._parameters.get("weight") is not None
