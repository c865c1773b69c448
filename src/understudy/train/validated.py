"""What validation says of a training's curve; without torch, for whoever reads a finished one."""

from collections.abc import Mapping, Sequence
from typing import Any

Curve = Sequence[Mapping[str, Any]]
"""Points of a training; those that were validated have a `validation_loss`."""


def losses(curve: Curve) -> list[tuple[int, float]]:
    """Step and loss of each point that was validated."""
    return [(point["step"], point["validation_loss"]) for point in curve if "validation_loss" in point]


def first_least(found: Sequence[float]) -> int:
    """The place of the smallest loss; of several the first."""
    return min(range(len(found)), key=found.__getitem__)


def best_step(curve: Curve) -> int:
    """The step after which the loss was smallest; of several the first."""
    measured = losses(curve)
    return measured[first_least([loss for _, loss in measured])][0]
