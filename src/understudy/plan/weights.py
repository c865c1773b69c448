"""Bytes of a model's weights in memory and in files, from its description: the model is built without memory."""

from dataclasses import dataclass

from torch import nn

from understudy.models.build import empty_model, tied_weights
from understudy.models.facts import Description


@dataclass(frozen=True)
class Weights:
    """A model's weights in bytes; tied ones count once."""

    parameters: int
    """In memory, in the dtype that the model is built in."""
    files: int
    """Of a saved model's tensors, persistent buffers included."""
    served: int
    """Of the parameters in fp32, in which a registered version is loaded."""


def weights_of(description: Description, path: str) -> Weights:
    """A model's weights. A model of code outside transformers is built whole, with memory."""
    net = empty_model(description, path).get_submodule("net")
    parameters = list(net.parameters())
    served = sum(weight.numel() * (4 if weight.is_floating_point() else weight.itemsize) for weight in parameters)
    return Weights(sum(weight.nbytes for weight in parameters), _saved(net), served)


def _saved(net: nn.Module) -> int:
    tied = tied_weights(net)
    return sum(tensor.nbytes for name, tensor in net.state_dict(keep_vars=True).items() if name not in tied)
