"""Which model, a row of frequencies, codes each value of a position, and the fit of these frequencies.

The values of a position, in this order: `most` less the number of entries; the tail (0 for none, otherwise its level
+ 1); the level of the first entry and its rank; then, for each further entry, the difference of its level to that of
the entry before, and its rank.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.teachers.cache import integers, rans

COUNT, TAIL, FIRST, GAP, RANK = 0, 1, 2, 10, 34
"""The first model of each kind of value."""
TIE = RANK + 8
MODELS = TIE + 36
KINDS = (COUNT, TAIL, FIRST, GAP, RANK, TIE, MODELS)

Integers = NDArray[np.int64]


def first_models(tails: NDArray[Any]) -> Integers:
    """Models of the first level, by the tail."""
    return FIRST + np.minimum(tails, 31).astype(np.int64) // 4


def place_class(place: Any) -> Any:
    """0 for the first entry, 1 for the next, 2 for two more, 3 for four more, and so on up to 7."""
    return np.minimum(np.frexp(place)[1], 7)


def gap_models(place: Any, gaps_before: NDArray[Any]) -> Integers:
    """Models of an entry's difference of levels, by its place and the difference before."""
    return GAP + 3 * place_class(place) + np.minimum(gaps_before, 2).astype(np.int64)


def count_gap_models(counts_before: NDArray[Any]) -> Integers:
    """Models of an entry's difference of counts, by the count before."""
    return GAP + np.clip(counts_before, 1, 24).astype(np.int64) - 1


def rank_models(place: Any, is_tie: NDArray[np.bool_], symbols_before: NDArray[Any]) -> Integers:
    """Models of an entry's rank: by the rank before, which is lower, if both have one level; by its place otherwise."""
    return np.where(is_tie, TIE + (symbols_before >> 2), RANK + place_class(place))


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
            weights = 16 * seen[model] * max(1, int(together.sum())) + 256 * together
            rows[model, : limits[model]] = _scaled(weights[: limits[model]])
    return rows


def _scaled(weights: Integers) -> Integers:
    """Integers in proportion to weights, at least 1 each, of the sum rans.TOTAL."""
    total = max(1, int(weights.sum()))
    free = rans.TOTAL - len(weights)
    shares = np.array([weight * free // total for weight in weights.tolist()], np.int64) + 1
    shares[int(np.argmax(shares))] += rans.TOTAL - int(shares.sum())
    return shares
