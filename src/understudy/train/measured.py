"""Whether a model computes in the precision in which it will be measured, tried before anything is trained."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from understudy.data.loader import Examples
from understudy.errors import InputError
from understudy.models.build import build_model, tried_model
from understudy.models.facts import Description
from understudy.models.narrow import narrowed
from understudy.models.one_type import MixedTypes, OneType
from understudy.train.shapes import check_shapes


def check_narrowed(description: Description, split: Examples, where: str) -> None:
    """Send the first example through a new model in bf16, without memory for it where that can be.

    Args:
        description: the model's.
        split: the training split.
        where: the recipe's path of the model, for errors.

    Raises:
        InputError: the model fails; a buffer of its code, for one, keeps its type, and what is added to it gets it.
    """
    device = torch.device("cpu")
    try:
        try:
            with tried_model(description, where) as model, _kernels(model):
                check_shapes(narrowed(model, torch.bfloat16), split, description, device, where)
        except InputError as error:
            if isinstance(error.__cause__, MixedTypes):
                raise
            # Some code cannot run without memory: a refusal counts when a real model refuses, too.
            check_shapes(narrowed(build_model(description, where), torch.bfloat16), split, description, device, where)
    except InputError as error:
        raise InputError(
            f"evaluate.precision: bf16: {error}. Weights are converted, buffers keep their type: convert them where "
            "the model uses them, or measure in fp32"
        ) from error


def _kernels(model: nn.Module) -> AbstractContextManager[object]:
    """What refuses as kernels do, for a model that has none; code of one's own is built with memory."""
    has_none = any(isinstance(parameter, FakeTensor) for parameter in model.parameters())
    return OneType() if has_none else nullcontext()
