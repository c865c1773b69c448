"""Narrower weights for a model that is used for inference only."""

import torch
from torch import nn

from understudy.models.tasks import ImageModel


def narrowed(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Convert a model's weights to another floating-point type, in place, and return it.

    Buffers are not converted: rounding positions and running means costs more accuracy than it saves memory. Weights of
    batch normalisation are not converted either, since torch requires them in the type of the running means.

    Args:
        model: with memory or without.
        dtype: the new type; torch.float32 changes nothing.
    """
    for module in model.modules():
        if getattr(module, "running_mean", None) is not None:
            continue
        for parameter in module.parameters(recurse=False):
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)
    if isinstance(model, ImageModel):
        model.kind = dtype
    return model
