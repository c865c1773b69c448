"""Topics: groups of positions with similar classes, each with an order of the classes of its own.

After a preposition other words are probable than inside of a number. A topic lists its HEAD most frequent classes; all
other classes follow in the order of the whole sample, so that a class has a small rank in a topic that fits. The topics
are a mixture of unigrams (Nigam et al. 2000), fitted with hard assignments.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

HEAD = 1024
"""Classes in a topic's list, where the vocabulary has as many."""
MOST_TOPICS = 256
POSITIONS_PER_TOPIC = 32
"""Positions of the sample for each topic, at least: fewer would be learned by heart."""
ENTRIES = 2**20
"""Entries of the sample that topics are fitted to."""
ROUNDS = 8
PRIOR = 2.0
"""Weight of the whole sample's frequencies in a topic, in positions."""
GATHERED = 2**23
"""Numbers in memory at a time while positions are assigned."""

Integers = NDArray[np.int64]


def fit(ids: Integers, counts: Integers) -> Integers:
    """The heads (topics, HEAD) of topics for positions with these ids (n, w), -1 for none.

    Args:
        ids: of the positions, used ones first.
        counts: (K,) of each class in the sample.
    """
    vocabulary = len(counts)
    rng = np.random.default_rng(0)
    if ids.size > ENTRIES:
        ids = ids[rng.choice(len(ids), ENTRIES // ids.shape[1], replace=False)]
    count = int(np.clip(len(ids) // POSITIONS_PER_TOPIC, 1, MOST_TOPICS))
    entries = PRIOR * max(1.0, float((ids >= 0).sum(axis=1).mean()))
    prior = entries * (counts + 1e-2) / (counts + 1e-2).sum()
    # A topic begins as one position of the sample.
    seeds = rng.choice(len(ids), count, replace=False)
    weights = _weights(ids[seeds], np.arange(count), count, prior)
    for _ in range(ROUNDS if count > 1 else 1):
        costs = np.zeros((vocabulary + 1, count), np.float32)
        costs[:-1] = -np.log(weights / weights.sum(axis=1, keepdims=True)).T
        topics = assign(ids, costs)
        weights = _weights(ids, topics, count, prior)
    by_size = np.argsort(-np.bincount(topics, minlength=count), kind="stable")
    return np.argsort(-weights[by_size], axis=1, kind="stable")[:, :HEAD]


def _weights(ids: Integers, topics: Integers, count: int, prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Frequencies of each class in each topic (count, K), smoothed."""
    used = ids >= 0
    keys = (topics[:, None] * len(prior) + ids)[used]
    return np.bincount(keys, minlength=count * len(prior)).reshape(count, -1) + prior


def assign(ids: Integers, costs: NDArray[Any]) -> Integers:
    """For each position (n, w) the topic of the least sum of costs (K + 1, topics), whose last row is for no class."""
    positions, width = ids.shape
    if costs.shape[1] == 1 or width == 0:
        return np.zeros(positions, np.int64)
    dtype = np.int64 if costs.dtype.kind == "u" else costs.dtype
    at_a_time = max(1, GATHERED // (width * costs.shape[1]))
    pieces = (ids[first : first + at_a_time] for first in range(0, positions, at_a_time))
    return np.concatenate([np.zeros(0, np.int64), *(costs[part].sum(axis=1, dtype=dtype).argmin(1) for part in pieces)])


def ranks(heads: Integers, order: Integers) -> NDArray[np.int32]:
    """The rank of each class in each topic (K, topics)."""
    of_all = np.empty(len(order), np.int32)
    of_all[order] = np.arange(len(order)) + heads.shape[1]
    output = np.repeat(of_all[:, None], len(heads), axis=1)
    np.put_along_axis(output, heads.T, np.arange(heads.shape[1], dtype=np.int32)[:, None], axis=0)
    return output


def classes(heads: Integers, order: Integers, topics: Integers, in_topic: Integers) -> Integers:
    """The classes of ranks (n, w), one topic for each position; those of negative ranks are arbitrary."""
    count, length = heads.shape
    everything = np.concatenate([heads.ravel(), order])
    at: Integers = np.where(in_topic < length, topics[:, None] * length, (count - 1) * length) + in_topic
    return everything.take(at)
