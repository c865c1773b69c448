"""Whether a model can train on every part of its batches.

Layers that normalise by a batch's mean and deviation (BatchNorm, Ioffe & Szegedy 2015) cannot train on a single value
per channel, and padding of a micro-batch would count in these statistics.
"""

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from understudy.data.loader import Examples, Order, part_width
from understudy.errors import InputError
from understudy.models.buffers import unchanged_buffers
from understudy.models.build import probe_model
from understudy.models.facts import Description
from understudy.recipe import Degrees, Train

ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def steps_of(train: Train, order: Order) -> int:
    """The number of steps of a training."""
    return train.steps or (train.epochs or 0) * order.steps_per_epoch


def part_sizes(order: Order, readers: int, parts: int, steps: int) -> set[int]:
    """The sizes of the non-empty parts of batches that are read in a training.

    Args:
        order: of the examples.
        readers: number of processes that read different examples.
        parts: micro-batches of each of them in a step.
        steps: of the training.
    """
    short = order.examples % order.batch_size
    sizes = {order.batch_size} if order.examples >= order.batch_size else set[int]()
    if short and steps >= order.steps_per_epoch:
        sizes.add(short)
    slices = [part for reader in range(readers) for part in order.places(reader, readers, parts)]
    return {min(part.stop, size) - part.start for size in sizes for part in slices if part.start < size}


def check_batches(
    description: Description, examples: Examples, train: Train, degrees: Degrees, device: str, path: str
) -> None:
    """Check that a model can train on the smallest part of a batch.

    Args:
        description: the model's description; the model is built on the CPU, if a part may be too small.
        examples: the training split.
        train: the recipe's settings.
        degrees: the model's degrees.
        device: the ranks' device, cpu or cuda.
        path: the model's section in the recipe, for errors: teacher or student.

    Raises:
        InputError: a part has one example, and the model cannot train on one; or a pipeline would pad a part, and the
            model's BatchNorm would count the padding.
    """
    sizes = _sizes(train, len(examples), degrees, device)
    width = part_width(train.batch_size, degrees.readers, train.gradient_accumulation_steps)
    is_filled_up = degrees.pp > 1 and min(sizes) < width
    if min(sizes) > 1 and not is_filled_up:
        return
    with probe_model(description, f"{path}.model") as model:
        if is_filled_up and any(isinstance(module, _BatchNorm) for module in model.modules()):
            raise InputError(
                f"{path}.train.batch_size: {len(examples):,} examples do not fill every micro-batch of a pipeline "
                f"with {width}, and the model's BatchNorm would count the padding; take a batch_size that "
                "divides their number, or another strategy"
            )
        error = _error_with_one(model, examples) if min(sizes) == 1 else ""
    if error:
        raise InputError(
            f"{path}.train.batch_size: in a part of a batch one example is alone "
            f"({_division(train, len(examples), degrees)}), and the model cannot learn from one ({error}); "
            f"{_fix(train, len(examples), degrees, device)}"
        )


def _sizes(train: Train, examples: int, degrees: Degrees, device: str) -> set[int]:
    order = Order(examples, train.batch_size, seed=0)
    # A guard that rolls back passes over batches, and reaches the last one of an epoch sooner.
    steps = order.steps_per_epoch if train.guard else steps_of(train, order)
    sizes = part_sizes(order, degrees.readers, train.gradient_accumulation_steps, steps)
    if train.strategy == "dp" and device == "cuda":  # DataParallel cuts each part into chunks
        return {size for batch in sizes for size in _chunks(batch, torch.cuda.device_count())}
    return sizes


def _chunks(size: int, count: int) -> set[int]:
    """The sizes of torch.chunk's parts."""
    width = -(-size // count)
    return {min(width, size - start) for start in range(0, size, width)}


def _error_with_one(model: nn.Module, examples: Examples) -> str:
    """The model's error if it trains on two examples but not on one; otherwise empty."""
    if not (error := _error_with(model, examples, 1)):
        return ""
    return "" if _error_with(model, examples, 2) else error


def _error_with(model: nn.Module, examples: Examples, count: int) -> str:
    inputs, _ = examples.batch(np.zeros(count, dtype=np.int64))
    training = model.training
    try:
        with torch.no_grad(), unchanged_buffers(model):
            model.train()(inputs)
    except ERRORS as raised:
        return f"{type(raised).__name__}: {' '.join(str(raised).split())[:200]}"
    finally:
        model.train(training)
    return ""


def _division(train: Train, examples: int, degrees: Degrees) -> str:
    """The division of the examples into batches and their parts, in words."""
    parts, readers = train.gradient_accumulation_steps, degrees.readers
    divisors = [f"{parts} micro-batches"] * (parts > 1) + [f"{readers} processes"] * (readers > 1)
    batches, remainder = divmod(examples, train.batch_size)
    return (
        f"{examples:,} = {batches:,} x {train.batch_size:,} + {remainder:,}"
        + ", each in " * bool(divisors)
        + " x ".join(divisors)
    )


def _fix(train: Train, examples: int, degrees: Degrees, device: str) -> str:
    """The advice: the next larger batch size without a part of one example."""
    unit = degrees.readers * train.gradient_accumulation_steps
    for size in range((train.batch_size // unit + 1) * unit, 2 * unit * (examples + 1), unit):
        if min(_sizes(train.model_copy(update={"batch_size": size}), examples, degrees, device)) > 1:
            return f"with {size} every part has more"
    return "take more examples"
