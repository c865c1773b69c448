"""What DistributedDataParallel holds beside a model: its buckets of gradients, as large as all of them."""

from typing import Any

import torch
from torch import nn


class Copies(nn.Module):
    """DistributedDataParallel's memory: it copies gradients into buckets. Its own code wants tensors with memory."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.buckets = {parameter: {"bucket": torch.empty(parameter.numel())} for parameter in trained}

    def forward(self, *given: Any, **named: Any) -> Any:
        """What the model says."""
        return self.module(*given, **named)
