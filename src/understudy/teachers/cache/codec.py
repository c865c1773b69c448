"""Sparse distributions to bytes, a run of them for each position, and back."""

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.errors import UnderstudyError
from understudy.teachers.cache import models, rans, topics
from understudy.teachers.cache.sparse import Sparse
from understudy.teachers.cache.tables import Levels, Tables

VALUES_AT_A_TIME = 2**20
"""Values in memory at a time while they are encoded."""
ENTRIES_AT_A_TIME = 2**27
"""Entries that are decoded at a time at most, 4 GiB with their copies: damaged bytes may claim any number."""


def encode(sparse: Sparse, tables: Tables) -> tuple[bytes, NDArray[np.int64]]:
    """The bytes of all positions end to end, and the number of bytes of each.

    Raises:
        UnderstudyError: the distributions do not fit the tables.
    """
    at_a_time = max(1, VALUES_AT_A_TIME // (2 + 2 * sparse.ids.shape[1]))
    blobs, lengths = [], [np.empty(0, np.int64)]
    for first in range(0, len(sparse.ids), at_a_time):
        piece = slice(first, first + at_a_time)
        part = Sparse(sparse.ids[piece], sparse.log_probs[piece], sparse.tail[piece], sparse.vocabulary)
        blob, of_part = rans.encode(tables.symbols(tables.levels(part)), tables.frequencies)
        blobs.append(blob)
        lengths.append(of_part)
    return b"".join(blobs), np.concatenate(lengths)


def decode(blob: bytes | NDArray[np.uint8], starts: NDArray[np.int64], tables: Tables) -> Sparse:
    """The distributions of positions, entries by falling probability and, where it is equal, by rank in the tables.

    Args:
        blob: the positions' bytes.
        starts: (n + 1,) where each position's bytes begin, and where the last ones end.
        tables: that they were encoded with.

    Raises:
        UnderstudyError: the bytes are damaged.
    """
    data = np.frombuffer(blob, np.uint8) if isinstance(blob, bytes) else blob
    if len(starts) < 1 or starts[0] < 0 or starts[-1] > len(data) or bool((np.diff(starts) < 1).any()):
        raise UnderstudyError("lengths of positions that do not fit their bytes")
    decoder = rans.Decoder(data, starts, tables.lookup)
    positions = len(starts) - 1
    first = (decoder.values(np.full(positions, model))[0] for model in (models.COUNT, models.TAIL, models.TOPIC))
    counts, tails, topics_of = (values.astype(np.int64) for values in first)
    counts = tables.most - counts
    if int(counts.min(initial=1)) < 1 or int(topics_of.max(initial=0)) >= len(tables.heads):
        raise UnderstudyError("a position with a wrong number of entries or a wrong topic")
    if positions * int(counts.max(initial=0)) > ENTRIES_AT_A_TIME:
        raise UnderstudyError(f"more than {ENTRIES_AT_A_TIME:,} entries at a time. Read fewer examples at a time.")
    order = np.argsort(-counts, kind="stable")
    decoder.reorder(order)
    levels, ranks = _entries(decoder, counts[order], tails[order], tables)
    decoder.finish()
    if int(counts.min(initial=0)) < levels.shape[0]:  # the order is another one
        restored = np.argsort(order)
        levels, ranks = levels[:, restored], ranks[:, restored]
    return _sparse(Levels(counts, tails, topics_of, levels.T, ranks.T), tables)


def _entries(
    decoder: rans.Decoder, counts: NDArray[np.int64], tails: NDArray[np.int64], tables: Tables
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Levels and ranks (w, n), -1 where unused, of lanes with falling counts."""
    width = int(counts.max(initial=0))
    levels, ranks = np.full((2, width, len(counts)), -1)
    lanes_of = np.searchsorted(-counts, -np.arange(width), side="left")  # with more entries than each place
    gaps, level, symbols = np.zeros((3, len(counts)), np.int64)
    for place, lanes in enumerate(lanes_of.tolist()):
        place_class, level = models.place_class(place), level[:lanes]
        if place == 0:
            chosen = models.first_models(tails)
        elif tables.draws:
            chosen = models.count_gap_models(tables.draws - level)
        else:
            chosen = models.gap_models(place_class, gaps[:lanes] if place > 1 else np.zeros(lanes, np.int64))
        gaps = decoder.joined_values(chosen)
        is_tie = gaps == 0 if place else np.zeros(lanes, np.bool_)
        level = np.add(level, gaps, out=levels[place, :lanes])
        ranks[place, :lanes], symbols = decoder.values(models.rank_models(place_class, is_tie, symbols[:lanes]))
    return levels, ranks


def _sparse(levels: Levels, tables: Tables) -> Sparse:
    """The distributions of levels and ranks, -1 where unused."""
    used = levels.ranks >= 0
    most = tables.heads.shape[1] + tables.vocabulary
    if int(levels.ranks.max(initial=0)) >= most or int(levels.levels.max(initial=0)) >= (tables.draws or 2**31):
        raise UnderstudyError("a value outside of the tables' range")
    ids = topics.classes(tables.heads, tables.order, levels.topics, np.maximum(levels.ranks, 0))
    log_probs = tables.log_probs(np.maximum(levels.levels, 0))
    tail = np.where(levels.tails > 0, (levels.tails - 1) * -tables.step, -np.inf).astype(np.float32)
    return Sparse(
        torch.from_numpy(np.where(used, ids, -1)),
        torch.from_numpy(np.where(used, log_probs, np.float32(-np.inf))),
        torch.from_numpy(tail),
        tables.vocabulary,
    )
