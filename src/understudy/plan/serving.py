"""Memory for serving a registered student: its weights, and its cache for each sequence."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from understudy.models.build import probe_model
from understudy.models.facts import Description, predicts_tokens
from understudy.plan.weights import weights_of
from understudy.recipe import EvaluatePrecision

SMALLER = {"fp32": 1, "bf16": 2}
"""Divisor of fp32's bytes."""


@dataclass(frozen=True)
class Serving:
    """Memory in bytes; a request's activations come on top."""

    precision: str
    """The recipe's evaluate.precision, in which a registered version is loaded."""

    weights: int
    cache: int | None
    """Keys and values of one sequence of the recipe's length; 0 for a network without a cache, None for a user's own
    code, which is not run."""


def serving(description: Description, path: str, precision: EvaluatePrecision) -> Serving:
    """The memory for serving a model."""
    cache, smaller = _cache(description, path), SMALLER[precision]
    return Serving(
        precision, weights_of(description, path).served // smaller, None if cache is None else cache // smaller
    )


def _cache(description: Description, path: str) -> int | None:
    """Bytes of the cache that the network returns on tensors without memory.

    Windows, and heads that share keys, are thus as in its code.
    """
    if not predicts_tokens(description):
        return 0
    if description["kind"] == "factory" or description.get("code"):
        return None
    with probe_model(description, path) as model, torch.no_grad():
        outputs = model.get_submodule("net").eval()(torch.zeros(1, description["sequence_length"], dtype=torch.int64))
    cached = [tensor for name, value in outputs.items() if name not in ("loss", "logits") for tensor in _tensors(value)]
    return sum(4 * tensor.numel() for tensor in cached if tensor.is_floating_point())


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of a transformers cache, whose layers have keys and values, or states, as attributes."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors(inner)
    elif hasattr(value, "layers"):
        for layer in value.layers:
            for inner in vars(layer).values():
                yield from _tensors(inner)
