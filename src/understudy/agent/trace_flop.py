"""FLOP of a trace's operators, from the shapes that torch.profiler records.

The profiler's own count lacks attention and the backward pass of convolutions.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

Shapes = Sequence[Sequence[int]]
"""Shapes of an operator's inputs; empty for an input that is not a tensor."""
Concrete = Sequence[str]
"""Values of the other inputs, in Python's notation."""


def flop_of(events: Sequence[Mapping[str, Any]]) -> int:
    """The FLOP of a trace's matrix products, convolutions and attention; a multiply-add counts as two.

    An operator on a DTensor calls the same operator on this rank's shard: only the inner one counts.
    """
    total = 0
    counted = [event for event in events if event.get("ph") == "X" and _formula(event["name"])]
    open_: dict[Any, Mapping[str, Any]] = {}
    for event in sorted(counted, key=lambda event: (event["ts"], -event["dur"])):
        outer = open_.get(event["tid"])
        if outer and event["ts"] < outer["ts"] + outer["dur"]:
            total -= _flop(outer)
        open_[event["tid"]] = event
        total += _flop(event)
    return total


def _flop(event: Mapping[str, Any]) -> int:
    values, formula = event.get("args", {}), _formula(event["name"])
    shapes = values.get("Input Dims")
    return formula(shapes, values.get("Concrete Inputs", [])) if formula and shapes else 0


def _formula(name: str) -> Callable[[Shapes, Concrete], int] | None:
    if name.startswith("aten::_scaled_dot_product_"):
        return _attention_backward if name.endswith("_backward") else _attention
    return FORMULAS.get(name)


def _product(shapes: Shapes, concrete: Concrete) -> int:
    """FLOP of a matrix product, batched or not: (..., m, k) and (..., k, n)."""
    del concrete
    return 2 * prod(shapes[0]) * shapes[1][-1]


def _added_product(shapes: Shapes, concrete: Concrete) -> int:
    return _product(shapes[1:], concrete)


def _attention(shapes: Shapes, concrete: Concrete) -> int:
    """FLOP of queries times keys, and of weights times values: (B, heads, positions, size) each."""
    del concrete
    queries, keys, values = shapes[:3]
    return 2 * prod(queries[:3]) * keys[2] * (queries[3] + values[3])


def _attention_backward(shapes: Shapes, concrete: Concrete) -> int:
    """FLOP of five products instead of two, since the weights are recomputed."""
    forward = _attention(shapes[1:], concrete)
    queries, _, values = shapes[1:4]
    size, answered = queries[3], values[3]
    return forward * (3 * size + 2 * answered) // (size + answered)


def _convolution(shapes: Shapes, concrete: Concrete) -> int:
    """FLOP of a convolution of (B, channels, ...) with (outputs, channels, ...), at every output position."""
    image, kernel = shapes[:2]
    if concrete[6] == "True":  # transposed: at every input position
        return 2 * image[0] * prod(image[2:]) * prod(kernel)
    stride, padding, dilation = (_numbers(text, len(kernel) - 2) for text in concrete[3:6])
    positions = [
        (size + 2 * pad - spread * (width - 1) - 1) // step + 1
        for size, width, step, pad, spread in zip(image[2:], kernel[2:], stride, padding, dilation, strict=True)
    ]
    return 2 * image[0] * prod(positions) * prod(kernel)


def _convolution_backward(shapes: Shapes, concrete: Concrete) -> int:
    """The forward FLOP for each requested gradient: the image's and the kernel's."""
    gradient, image, kernel = shapes[:3]
    size = image if concrete[7] == "True" else gradient
    gradients = sum(word.strip(" []") in ("True", "1") for word in concrete[10].split(",")[:2])
    return 2 * size[0] * prod(size[2:]) * prod(kernel) * gradients


def _numbers(text: str, dimensions: int) -> list[int]:
    numbers = [int(number) for number in json.loads(text)]
    return numbers * dimensions if len(numbers) == 1 else numbers


FORMULAS: Mapping[str, Callable[[Shapes, Concrete], int]] = {
    "aten::mm": _product,
    "aten::_scaled_mm": _product,
    "aten::bmm": _product,
    "aten::addmm": _added_product,
    "aten::baddbmm": _added_product,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
}
