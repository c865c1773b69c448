"""How large a model is: its parameters, its bytes, the operations of a forward pass."""

from pathlib import Path

import torch
from torch import Tensor, nn

from understudy.models.facts import WEIGHTS


def parameter_count(model: nn.Module) -> int:
    """The number of a model's weights, tied ones counted once, buffers left out."""
    return sum(parameter.numel() for parameter in model.parameters())


def weight_bytes(folder: Path) -> int:
    """Bytes of a saved model's weights on disk."""
    return (folder / WEIGHTS).stat().st_size


def flops_per_example(model: nn.Module, inputs: Tensor) -> int:
    """Floating-point operations of one forward pass, per example of the batch (torch's FlopCounterMode)."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs)
    return int(counter.get_total_flops()) // len(inputs)
