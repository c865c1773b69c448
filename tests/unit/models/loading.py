"""Loading of models that a test saved itself, without the checks of their descriptions."""

from pathlib import Path

import torch
from torch import nn

from understudy.models import size
from understudy.models.facts import read_description
from understudy.models.files import load_model


def loaded(folder: Path) -> nn.Module:
    """The model that its own description says, on the CPU."""
    return load_model(folder, read_description(folder), torch.device("cpu"))


def parameter_count(folder: Path) -> int:
    """The number of the weights of such a model."""
    return size.parameter_count(loaded(folder))
