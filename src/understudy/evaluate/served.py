"""Whether a registered version gives the numbers that the gate saw: some test examples, scored once more through it.

The tolerance stands on the precision in which models are measured and served. The same network computes the same
prediction in other batches and with other kernels, so its rounding differs, by a factor that nobody tracks through a
network. As usual for such a computation half of the digits are trusted: of fp32's significand of 24 bits 12, of bf16's
8 bits 4 (Dennis and Schnabel 1983, section 5.4). In fp32 that is 2.4e-4, of a nat and of the loss itself, for each
prediction of an example, in bf16 0.06. Other tokens, other pixels, a missing normalisation or logits of tokens that do
not exist change an example by hundreds of times as much as fp32's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.metrics import FloatArray
from understudy.recipe import EvaluatePrecision

EXAMPLES = 32
"""How many are scored."""
PREDICTIONS = 2**15
"""How many predictions they are together at most; the shortest example is scored, however long it is."""
TOLERANCES = {"fp32": 2.0**-12, "bf16": 2.0**-4}
"""Of a nat, and of the loss, for each prediction."""


@dataclass(frozen=True)
class Comparison:
    """Scores of a version beside those of the evaluation, in nats by example."""

    examples: Sequence[int]
    """Their places in the test split."""
    measured: FloatArray
    served: FloatArray
    predictions: FloatArray
    precision: EvaluatePrecision

    @property
    def allowed(self) -> FloatArray:
        """Nats of each example that rounding may make."""
        found: FloatArray = TOLERANCES[self.precision] * (self.predictions + np.abs(self.measured))
        return found

    @property
    def shares(self) -> FloatArray:
        """Each difference as a share of what rounding may make of it."""
        found: FloatArray = np.abs(self.served - self.measured) / self.allowed
        return found

    @property
    def holds(self) -> bool:
        """Whether no difference is above rounding; one that is no number is."""
        return bool(np.all(self.shares <= 1))

    @property
    def worst(self) -> int:
        """Which example differs most."""
        return int(np.argmax(np.nan_to_num(self.shares, nan=np.inf)))

    def figures(self) -> dict[str, float]:
        """What the evidence says of it."""
        return {
            "examples": len(self.examples),
            "predictions": float(self.predictions.sum()),
            "largest_difference": float(np.abs(self.served - self.measured).max()),
            "largest_share_of_tolerance": float(self.shares.max()),
        }


def chosen(predictions: NDArray[np.int64]) -> list[int]:
    """The examples that are scored: evenly spaced over the split, and together not longer than PREDICTIONS.

    Args:
        predictions: of each example of the split, which has at least one.
    """
    places = np.unique(np.linspace(0, len(predictions) - 1, EXAMPLES).astype(int)).tolist()
    found, left = list[int](), PREDICTIONS
    for place in places:
        if predictions[place] <= left:
            found.append(place)
            left -= int(predictions[place])
    return found or [int(predictions.argmin())]
