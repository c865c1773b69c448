"""One process that drives all GPUs of its machine: torch's DataParallel.

Each step copies the model to every GPU, scatters the batch, and gathers the outputs on the first GPU.
"""

import logging

import torch
from torch import nn
from torch.nn.parallel import DataParallel

log = logging.getLogger(__name__)


def over_devices(model: nn.Module, device: torch.device) -> nn.Module:
    """The model on all visible GPUs; on CPU the model itself.

    Args:
        model: on `device`, with its weights.
        device: the first GPU, or the CPU.
    """
    log.warning(
        "dp is one process: its threads take turns in Python, each step copies the model to every GPU, and the first "
        "holds the logits of all; ddp, with a process for each GPU, trains the same and is faster"
    )
    return DataParallel(model) if device.type == "cuda" else model
