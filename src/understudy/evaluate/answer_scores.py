"""Scores of generated answers as results of other examples: those that are answered, each one right to a degree.

So the mean of a score is an accuracy, with its intervals. If answers are right or wrong, as of exact match, these are
the ones for proportions.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


class Unmeasured(Exception):
    """A requested value is not available; the message gives the reason."""


class Uncollected(Unmeasured):
    """The scores of a metric are not available."""


def as_accuracy(name: str, per_example: Mapping[str, Any], roles: Iterable[str]) -> dict[str, Any]:
    """The arrays of per_example.npz, for the answered examples alone, of models that have the scores.

    Args:
        name: the metric; its scores are ROLE.NAME.
        per_example: the arrays with all results.
        roles: models that the caller needs.

    Raises:
        Uncollected: a model has no scores, or one of its answers was not measured.
    """
    suffix = f".{name}"
    scores = {key.removesuffix(suffix): values for key, values in per_example.items() if key.endswith(suffix)}
    for role in roles:
        if not len(scores.get(role, ())):
            raise Uncollected(f"the {role} has generated no answers")
        if not np.isfinite(scores[role]).all():
            raise Uncollected(f"some answers of the {role} were not measured")
    zeros = np.zeros(len(next(iter(scores.values()), ())))
    results = {f"{role}.correct": values for role, values in scores.items()}
    results |= {f"{role}.nll": zeros for role in scores}
    return {"weights.tokens": zeros + 1, "weights.bytes": zeros, **results}
