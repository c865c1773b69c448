"""A model that is only asked, with its weights in half the bytes."""

import torch
from torch import nn

from understudy.models.tasks import ImageModel


def narrowed(model: nn.Module, kind: torch.dtype) -> nn.Module:
    """The same model, computing in another floating-point type.

    Its buffers stay as they are: positions and running means lose more by rounding than they take. So do the weights of
    a batch normalisation, which torch computes in one type with its running means.

    Args:
        model: with memory or without; it is changed in place.
        kind: torch.float32 leaves all as it is.
    """
    for module in model.modules():
        if getattr(module, "running_mean", None) is not None:
            continue
        for parameter in module.parameters(recurse=False):
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(kind)
    if isinstance(model, ImageModel):
        model.kind = kind
    return model
