"""Memory of DistributedDataParallel beside a model: buckets as large as all gradients."""

from typing import Any

import torch
from torch import nn


class Copies(nn.Module):
    """A stand-in for DistributedDataParallel, which copies gradients into buckets, and itself needs real tensors."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.buckets = {parameter: {"bucket": torch.empty(parameter.numel())} for parameter in trained}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs."""
        return self.module(*args, **kwargs)
