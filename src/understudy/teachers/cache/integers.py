"""Integers below 2^20 as a symbol and raw bits: exact below 16, then eight symbols for each power of two.

A symbol is a float with three bits of mantissa, and raw bits are what follows: equally probable, or nearly so.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LIMIT = 2**20
"""All values are below it, so that raw bits are at most 16."""

EXACT = 16
"""Integers below it are their own symbols."""

Array = NDArray[Any]


def split(values: Array) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint32]]:
    """Symbols, numbers of raw bits and raw bits of integers in [0, LIMIT)."""
    bits = np.maximum(np.frexp(values.astype(np.float64))[1] - 4, 0)
    symbols = (values >> bits) + 8 * bits
    raw = values & ((1 << bits) - 1)
    return symbols.astype(np.uint8), bits.astype(np.uint8), raw.astype(np.uint32)


def symbols_below(limit: int) -> int:
    """The number of symbols of integers below a limit."""
    return int(split(np.array([limit - 1]))[0][0]) + 1 if limit > 0 else 1


SYMBOLS = symbols_below(LIMIT)
ALL = np.arange(SYMBOLS)
BITS = np.maximum(ALL // 8 - 1, 0)
"""The number of raw bits of each symbol."""
FIRST = (ALL - 8 * BITS) << BITS
"""The smallest value of each symbol."""


def log_shares(counts: NDArray[np.int64], draws: int) -> NDArray[np.float32]:
    """float32 log(counts / draws), -inf for 0."""
    with np.errstate(divide="ignore"):
        by_count = np.log(np.arange(draws + 1) / draws).astype(np.float32)
    return by_count[counts]
