"""Whether a model computes in the precision of its evaluation, tested before any training."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from understudy.data.loader import Examples
from understudy.errors import InputError
from understudy.models.build import build_model, probe_model
from understudy.models.facts import Description
from understudy.models.narrow import narrowed
from understudy.models.one_type import MixedTypes, OneType
from understudy.train.shapes import check_shapes


def check_narrowed(description: Description, split: Examples, path: str) -> None:
    """Send the first example through a new model in bf16, without memory where possible.

    Args:
        description: the model's.
        split: the training split.
        path: the model's path in the recipe, for errors.

    Raises:
        InputError: the model fails, for example because a buffer keeps its type, and sums with it are promoted.
    """
    device = torch.device("cpu")
    try:
        try:
            with probe_model(description, path) as model, _kernels(model):
                check_shapes(narrowed(model, torch.bfloat16), split, description, device, path)
        except InputError as error:
            if isinstance(error.__cause__, MixedTypes):
                raise
            # Some code cannot run without memory: a failure counts if a real model fails, too.
            check_shapes(narrowed(build_model(description, path), torch.bfloat16), split, description, device, path)
    except InputError as error:
        raise InputError(
            f"evaluate.precision: bf16: {error}. Weights are converted, buffers keep their type: convert them where "
            "the model uses them, or measure in fp32"
        ) from error


def _kernels(model: nn.Module) -> AbstractContextManager[object]:
    """OneType, which fails as kernels would, for a model without memory; custom code is built with memory."""
    has_none = any(isinstance(parameter, FakeTensor) for parameter in model.parameters())
    return OneType() if has_none else nullcontext()
