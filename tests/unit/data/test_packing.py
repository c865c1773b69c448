"""Documents in sequences: each token once, none cut that fits, and as few sequences as best-fit decreasing has."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.packing import best_fit, cut, write_packed

LENGTH = 9
lengths = st.lists(st.integers(1, 30), max_size=40)


def written(folder: Path, documents: list[int]) -> list[list[tuple[int, int]]]:
    """The pieces of each sequence."""
    np.save(folder / "train.offsets.npy", np.cumsum([0, *documents]))
    write_packed(folder, "train", LENGTH)
    pieces, first = (np.load(folder / f"train.{name}.npy") for name in ("pieces", "sequences"))
    assert (pieces.dtype, first.dtype, pieces.shape[1]) == (np.int64, np.int64, 2)
    return [[tuple(piece) for piece in part.tolist()] for part in np.split(pieces, first[1:-1])] if first[-1] else []


@given(lengths)
def test_every_token_is_in_one_piece_and_every_piece_in_one_sequence(
    tmp_path_factory: pytest.TempPathFactory, documents: list[int]
) -> None:
    sequences = written(tmp_path_factory.mktemp("packed"), documents)
    tokens = [start + token for sequence in sequences for start, size in sequence for token in range(size)]
    assert sorted(tokens) == list(range(sum(documents)))
    assert all(0 < sum(size for _, size in sequence) <= LENGTH for sequence in sequences)


@given(lengths)
def test_only_what_is_longer_than_a_sequence_is_cut(documents: list[int]) -> None:
    ends = np.cumsum([0, *documents])
    expected = [
        (int(first + start), min(LENGTH, size - start))
        for first, size in zip(ends, documents, strict=False)
        for start in range(0, size, LENGTH)
    ]
    assert [tuple(piece) for piece in cut(ends, LENGTH).tolist()] == expected


@given(st.lists(st.integers(1, LENGTH), max_size=60))
def test_sequences_are_as_many_as_the_algorithm_written_out_has(sizes: list[int]) -> None:
    free: list[int] = []
    for size in sorted(sizes, reverse=True):
        fitting = [index for index, room in enumerate(free) if room >= size]
        if not fitting:
            free.append(LENGTH)
            fitting = [len(free) - 1]
        free[min(fitting, key=free.__getitem__)] -= size
    sequences = best_fit(np.array(sizes, dtype=np.int64), LENGTH)
    filled = np.bincount(sequences, weights=sizes) if sizes else np.array([])
    assert sorted(filled.tolist()) == sorted(LENGTH - room for room in free)


def test_the_same_documents_give_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        written(tmp_path / name, [3, 9, 5, 4, 25, 1])
        contents.append([(tmp_path / name / f"train.{part}.npy").read_bytes() for part in ("pieces", "sequences")])
    assert contents[0] == contents[1]
    assert written(tmp_path, [3, 9, 5, 4, 25, 1]) == [
        [(3, 9)],
        [(21, 9)],
        [(30, 9)],
        [(39, 7), (46, 1)],
        [(12, 5), (17, 4)],
        [(0, 3)],
    ]
