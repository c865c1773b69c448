"""Sparse distributions to bytes, a run of them for each position, and back."""

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.errors import UnderstudyError
from understudy.teachers.cache import integers, models, rans
from understudy.teachers.cache.sparse import Sparse
from understudy.teachers.cache.tables import Tables

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
    counts = tables.most - decoder.values(np.full(positions, models.COUNT), positions).astype(np.int64)
    if int(counts.min(initial=1)) < 1:
        raise UnderstudyError("a position with a wrong number of entries")
    tails = decoder.values(np.full(positions, models.TAIL), positions).astype(np.int64)
    if positions * int(counts.max(initial=0)) > ENTRIES_AT_A_TIME:
        raise UnderstudyError(f"more than {ENTRIES_AT_A_TIME:,} entries at a time. Read fewer examples at a time.")
    order = np.argsort(-counts, kind="stable")
    decoder.reorder(order)
    levels, ranks = _entries(decoder, counts[order], tails[order], tables)
    decoder.finish()
    return _sparse(order, levels, ranks, tails, tables)


def _entries(
    decoder: rans.Decoder, counts: NDArray[np.int64], tails: NDArray[np.int64], tables: Tables
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Levels and ranks (w, n), -1 where unused, of lanes with falling counts."""
    width = int(counts.max(initial=0))
    levels, ranks = np.full((2, width, len(counts)), -1)
    lanes_of = np.searchsorted(-counts, -np.arange(width), side="left")  # with more entries than each place
    gaps = np.zeros(len(counts), np.int64)
    level, symbols = gaps.copy(), gaps.copy()
    for place in range(width):
        lanes = int(lanes_of[place])
        if place == 0:
            chosen = models.first_models(tails)
        elif tables.draws:
            chosen = models.count_gap_models(tables.draws - level[:lanes])
        else:
            chosen = models.gap_models(place, gaps[:lanes] if place > 1 else np.zeros(lanes, np.int64))
        gaps = decoder.values(chosen, lanes).astype(np.int64)
        level = level[:lanes] + gaps
        chosen = models.rank_models(place, (gaps == 0) & (place > 0), symbols[:lanes])
        symbols = decoder.symbols(chosen, lanes)
        ranks[place, :lanes] = integers.FIRST[symbols] + decoder.raw(integers.BITS[symbols], lanes)
        levels[place, :lanes] = level
    return levels, ranks


def _sparse(
    order: NDArray[np.int64],
    levels: NDArray[np.int64],
    ranks: NDArray[np.int64],
    tails: NDArray[np.int64],
    tables: Tables,
) -> Sparse:
    """Distributions of levels and ranks (w, n) that are in another order of positions."""
    if int(ranks.max(initial=0)) >= tables.vocabulary or (tables.draws and int(levels.max(initial=0)) >= tables.draws):
        raise UnderstudyError("a value outside of the tables' range")
    ids, log_probs = np.empty(levels.T.shape, np.int64), np.empty(levels.T.shape, np.float32)
    ids[order] = np.where(ranks >= 0, tables.order[ranks], -1).T
    log_probs[order] = np.where(levels >= 0, tables.log_probs(np.maximum(levels, 0)), np.float32(-np.inf)).T
    tail = np.where(tails > 0, (tails - 1) * -tables.step, -np.inf).astype(np.float32)
    return Sparse(torch.from_numpy(ids), torch.from_numpy(log_probs), torch.from_numpy(tail), tables.vocabulary)
