"""Whether a model's outputs fit the data, tested on one example before any training."""

from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch._subclasses import fake_tensor

from understudy.data.loader import Examples
from understudy.errors import InputError
from understudy.models.facts import Description, output_size
from understudy.models.outputs import OutputShapes
from understudy.models.tasks import NOTHING, TextModel
from understudy.parallel.peers import is_lost_peer
from understudy.recipe.objectives import Extra


def check_shapes(
    model: nn.Module,
    examples: Examples,
    description: Description,
    device: torch.device,
    path: str,
    extras: frozenset[Extra] = NOTHING,
) -> OutputShapes:
    """Send the first example through a model that is already on its device, and restore its mode.

    Args:
        model: maps a batch of inputs to Outputs, with logits (B, classes) or (B, L, vocabulary).
        examples: the training split.
        description: the model's, as returned by describe().
        device: cpu or cuda.
        path: the model's path in the recipe, for errors.
        extras: outputs besides logits that the objectives need.

    Returns:
        The shapes of the extras.

    Raises:
        InputError: the model fails on the example, or its output has the wrong shape.
    """
    inputs, labels = examples.batch(np.zeros(1, dtype=np.int64))
    expected, training = (*labels.shape, output_size(description)), model.training
    try:
        # torch logs a traceback of failures without memory, which are reported below.
        with torch.no_grad(), patch.object(fake_tensor.log, "disabled", new=True):
            outputs = model.eval()(inputs.to(device), extras)
    except torch.OutOfMemoryError:
        raise  # a RuntimeError too, but not a fault of the model or the example
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if is_lost_peer(error):  # shards are gathered from ranks that may be gone
            raise
        raise _refusal(error, f"{_inputs_of(description)} of shape {tuple(inputs.shape)}", path) from error
    model.train(training)
    _check_logits(tuple(outputs.logits.shape), expected, tuple(inputs.shape), path)
    return OutputShapes(tuple(state.shape[1:] for state in outputs.hidden_states))


def _check_logits(shape: tuple[int, ...], expected: tuple[int, ...], inputs: tuple[int, ...], path: str) -> None:
    if shape != expected:
        raise InputError(
            f"{path}: the model returns logits of shape {shape} for inputs of shape {inputs}, but the data needs "
            f"{expected}, one logit for each label or token"
        )


def _refusal(error: Exception, example: str, path: str) -> InputError:
    """The error for a model whose code fails on the example."""
    kind, words = type(error).__name__, " ".join(str(error).split())[:500]
    return InputError(
        f"{path}: the model fails on the first example, {example} ({kind}: {words}); it has to fit the data and "
        "return logits, or an object with .logits"
    )


def _inputs_of(description: Description) -> str:
    return "a batch of images" if "image" in description else "a batch of tokens"


def find_head(model: nn.Module, examples: Examples, device: torch.device) -> None:
    """Detect on the first example whether a language model's logits can be computed for some positions only."""
    if isinstance(model, TextModel):
        training, inputs = model.training, examples.batch(np.zeros(1, dtype=np.int64))[0].to(device)
        model.eval().detect_head(lambda reduce: model(inputs, reduce=reduce))
        model.train(training)
