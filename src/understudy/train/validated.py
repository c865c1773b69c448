"""Validation losses of a training's curve; without torch, for readers of a finished one."""

from collections.abc import Mapping, Sequence
from typing import Any

Curve = Sequence[Mapping[str, Any]]
"""Points of a training; validated ones have a `validation_loss`."""


def losses(curve: Curve) -> list[tuple[int, float]]:
    """Step and loss of each validated point."""
    return [(point["step"], point["validation_loss"]) for point in curve if "validation_loss" in point]


def first_least(losses: Sequence[float]) -> int:
    """The index of the smallest loss; of several the first."""
    return min(range(len(losses)), key=losses.__getitem__)


def best_step(curve: Curve) -> int:
    """The step with the smallest loss; of several the first."""
    measured = losses(curve)
    return measured[first_least([loss for _, loss in measured])][0]
