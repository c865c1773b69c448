"""Packing of whole documents into sequences of one length by best-fit decreasing (Ding et al. 2024).

A document longer than a sequence is cut as in evaluation, and each piece counts as a document. The longest comes
first, into the fullest sequence with room: so no document is cut that fits, and there is little padding.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def write_packed(folder: Path, split: str, length: int) -> None:
    """Write the packing of a split's tokens into sequences.

    `pieces`, int64 (pieces, 2), has the start and the number of tokens of each piece, sequence by sequence;
    `sequences`, int64 (sequences + 1,), the first piece of each sequence.

    Args:
        folder: the folder of the examples, with the split's offsets.
        split: its name.
        length: the length of a sequence in tokens.
    """
    pieces = cut(np.load(folder / f"{split}.offsets.npy"), length)
    sequence = best_fit(pieces[:, 1], length)
    order = np.argsort(sequence, kind="stable")
    np.save(folder / f"{split}.pieces.npy", pieces[order])
    np.save(folder / f"{split}.sequences.npy", np.cumsum(np.bincount(sequence + 1, minlength=1)))


def cut(offsets: Integers, length: int) -> Integers:
    """The start and the number of tokens of pieces of at most `length` tokens: (pieces, 2).

    Args:
        offsets: the documents' offsets, (documents + 1,).
        length: the most tokens that a piece may have.
    """
    counts = -(-np.diff(offsets) // length)
    nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(offsets[:-1], counts) + nth * length
    return np.stack([starts, np.minimum(length, np.repeat(offsets[1:], counts) - starts)], 1)


def best_fit(sizes: Integers, length: int) -> Integers:
    """The sequence of each piece, counted from 0.

    Args:
        sizes: the pieces' sizes, from 1 to `length`.
        length: the length of a sequence.
    """
    sequences = np.empty(len(sizes), dtype=np.int64)
    with_room: list[list[int]] = [[] for _ in range(length + 1)]
    rooms, count = 0, 0  # a bit for each number of free positions that some sequence has
    for piece in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[piece])
        enough = rooms >> size
        if enough:
            room = size + (enough & -enough).bit_length() - 1
            sequence = with_room[room].pop()
            if not with_room[room]:
                rooms ^= 1 << room
        else:
            room, sequence, count = length, count, count + 1
        sequences[piece], remaining = sequence, room - size
        if remaining:
            with_room[remaining].append(sequence)
            rooms |= 1 << remaining
    return sequences
