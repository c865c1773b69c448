"""The size of a model: its parameters, and the FLOPs of a forward pass."""

import torch
from torch import Tensor, nn


def parameter_count(model: nn.Module) -> int:
    """The number of a model's weights. Tied weights count once, buffers do not count."""
    return sum(parameter.numel() for parameter in model.parameters())


def flops_per_example(model: nn.Module, inputs: Tensor) -> int:
    """FLOPs of one forward pass per example of the batch, counted by torch's FlopCounterMode."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs)
    return int(counter.get_total_flops()) // len(inputs)
