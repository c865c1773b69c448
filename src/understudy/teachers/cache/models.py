"""Which model, a row of frequencies, codes each value of a position, and the fit of these frequencies.

The values of a position, in this order: `most` less the number of entries; the tail (0 for none, otherwise its level
+ 1); the topic; the level of the first entry and its rank in the topic; then, for each further entry, the difference of
its level to that of the entry before, and its rank.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.teachers.cache import integers, rans

COUNT, TAIL, TOPIC, FIRST, GAP, RANK = 0, 1, 2, 3, 11, 35
"""The first model of each kind of value."""
TIE = RANK + 8
MODELS = TIE + 36
KINDS = (COUNT, TAIL, TOPIC, FIRST, GAP, RANK, TIE, MODELS)

Integers = NDArray[np.int64]


def first_models(tails: Integers) -> Integers:
    """Models of the first level, by the tail."""
    models: Integers = np.minimum(tails, 31) // 4 + FIRST
    return models


def place_class(place: int) -> int:
    """0 for the first entry, 1 for the next, 2 for two more, 3 for four more, and so on up to 7."""
    return min(place.bit_length(), 7)


def gap_models(place_classes: int | Integers, gaps_before: Integers) -> Integers:
    """Models of an entry's difference of levels, by its place and the difference before."""
    models: Integers = np.minimum(gaps_before, 2)
    models += GAP + 3 * place_classes
    return models


def count_gap_models(counts_before: Integers) -> Integers:
    """Models of an entry's difference of counts, by the count before."""
    return np.clip(counts_before, 1, 24) + (GAP - 1)


def rank_models(place_classes: int | Integers, is_tie: NDArray[np.bool_], symbols_before: NDArray[Any]) -> Integers:
    """Models of an entry's rank: by the rank before, which is lower, if both have one level; by its place otherwise."""
    return np.where(is_tie, (symbols_before >> 2) + TIE, place_classes + RANK)


def frequencies(models: Integers, symbols: NDArray[np.uint8], limits: Integers) -> rans.Frequencies:
    """Frequencies fitted to symbols: at least 1 for each symbol below its model's limit, 0 for others.

    A model that was rarely seen resembles all of its kind together.
    """
    seen = np.bincount(models * integers.SYMBOLS + symbols, minlength=MODELS * integers.SYMBOLS)
    seen = seen.reshape(MODELS, integers.SYMBOLS)
    rows = np.zeros_like(seen)
    for first, end in pairwise(KINDS):
        together = seen[first:end].sum(axis=0)
        for model in range(first, end):
            weights = 16 * seen[model] * max(1, int(together.sum())) + 256 * together + 1
            rows[model, : limits[model]] = _scaled(weights[: limits[model]])
    return rows


def _scaled(weights: Integers) -> Integers:
    """Integers in proportion to weights, at least 1 each, of the sum rans.TOTAL."""
    total = max(1, int(weights.sum()))
    free = rans.TOTAL - len(weights)
    shares = np.array([weight * free // total for weight in weights.tolist()], np.int64) + 1
    shares[int(np.argmax(shares))] += rans.TOTAL - int(shares.sum())
    return shares
