"""Draws of examples with replacement, the same for every model: sums over each draw, or any function of its scores."""

from collections.abc import Callable

import numpy as np

from understudy.evaluate.agreement import Scores
from understudy.evaluate.intervals import FloatArray

RESAMPLES = 10_000
SEED = 0
CELLS = 2**21  # counts in a chunk: 16 MiB for each of its three arrays


def resampled_values(
    function: Callable[[Scores], float], scores: Scores, resamples: int = RESAMPLES, seed: int = SEED
) -> FloatArray:
    """A function of the scores of `resamples` draws of N examples with replacement, (R,); the same draws for all."""
    generator = np.random.default_rng(seed)
    count = len(next(iter(scores.values())))
    draws = (generator.integers(0, count, size=count) for _ in range(resamples))
    return np.array([function({name: part[rows] for name, part in scores.items()}) for rows in draws])


def resampled_sums(table: FloatArray, resamples: int = RESAMPLES, seed: int = SEED) -> FloatArray:
    """Sums (R, K) of `resamples` draws of N rows with replacement out of a table (N, K); deterministic."""
    generator = np.random.default_rng(seed)
    rows = len(table)
    sums = np.empty((resamples, table.shape[1]))
    chunk = max(1, CELLS // rows)
    for start in range(0, resamples, chunk):
        draws = min(chunk, resamples - start)
        drawn = generator.integers(0, rows, size=(draws, rows)) + np.arange(draws)[:, None] * rows
        counts = np.bincount(drawn.ravel(), minlength=draws * rows).reshape(draws, rows)
        with np.errstate(invalid="ignore", over="ignore"):
            sums[start : start + draws] = counts.astype(np.float64) @ table
    return sums
