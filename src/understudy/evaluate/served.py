"""A check that a registered version reproduces the gate's numbers: it scores some test examples once more.

The tolerance depends on the precision in which models are measured and served. The same network computes the same
prediction in other batches and with other kernels, so its rounding differs by an unknown factor. As usual for such a
computation half of the digits are trusted: 12 of the 24 bits of fp32's significand, 4 of bf16's 8 (Dennis and
Schnabel 1983, section 5.4). That is 2.4e-4 in fp32 and 0.06 in bf16, of a nat and of the loss itself, for each
prediction of an example. Other tokens, other pixels, a missing normalisation or logits of tokens that do not exist
change an example by hundreds of times fp32's tolerance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.metrics import FloatArray
from understudy.recipe import EvaluatePrecision

EXAMPLES = 32
"""Maximum number of scored examples."""
PREDICTIONS = 2**15
"""Maximum number of their predictions; the shortest example is scored, however long it is."""
TOLERANCES = {"fp32": 2.0**-12, "bf16": 2.0**-4}
"""In nats per prediction, and as a share of the loss."""


@dataclass(frozen=True)
class Comparison:
    """Scores of a version and of the evaluation, in nats by example."""

    examples: Sequence[int]
    """Their indices in the test split."""
    measured: FloatArray
    served: FloatArray
    predictions: FloatArray
    precision: EvaluatePrecision

    @property
    def allowed(self) -> FloatArray:
        """The tolerance of each example, in nats."""
        tolerances: FloatArray = TOLERANCES[self.precision] * (self.predictions + np.abs(self.measured))
        return tolerances

    @property
    def shares(self) -> FloatArray:
        """Each difference as a share of its tolerance."""
        ratios: FloatArray = np.abs(self.served - self.measured) / self.allowed
        return ratios

    @property
    def is_within_tolerance(self) -> bool:
        """Whether all differences are within the tolerance; a NaN is not."""
        return bool(np.all(self.shares <= 1))

    @property
    def worst(self) -> int:
        """The index of the example that differs most."""
        return int(np.argmax(np.nan_to_num(self.shares, nan=np.inf)))

    def figures(self) -> dict[str, float]:
        """The comparison in figures, for the evidence."""
        return {
            "examples": len(self.examples),
            "predictions": float(self.predictions.sum()),
            "largest_difference": float(np.abs(self.served - self.measured).max()),
            "largest_share_of_tolerance": float(self.shares.max()),
        }


def chosen(predictions: NDArray[np.int64]) -> list[int]:
    """The examples to score: evenly spaced over the split, with at most PREDICTIONS predictions together.

    Args:
        predictions: number of predictions of each example; one at least has some.
    """
    measured = np.flatnonzero(predictions)  # a conversation that was left out has none
    candidates = measured[np.unique(np.linspace(0, len(measured) - 1, EXAMPLES).astype(int))]
    selected, remaining = list[int](), PREDICTIONS
    for index in candidates.tolist():
        if predictions[index] <= remaining:
            selected.append(index)
            remaining -= int(predictions[index])
    return selected or [int(measured[predictions[measured].argmin()])]
