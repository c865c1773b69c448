from pathlib import Path

import numpy as np
import pytest

from understudy.data.word_arrays import WordExamples, Words, lengths, targets

LABELS = np.array([[-100, 2, -100, 0, -100], [-100, 1, -100, -100, -100], [-100, 0, 1, 2, -100]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "test.inputs.npy", np.arange(15, dtype=np.int32).reshape(3, 5))
    np.save(tmp_path / "test.labels.npy", LABELS)
    np.save(tmp_path / "test.bytes.npy", np.array([9, 3, 12]))
    return tmp_path


def test_training_reads_a_label_for_each_first_token(folder: Path) -> None:
    examples = WordExamples(folder, "test")
    inputs, labels = examples.batch(np.array([2, 0]))
    assert inputs.tolist() == [[10, 11, 12, 13, 14], [0, 1, 2, 3, 4]]
    assert labels.tolist() == LABELS[[2, 0]].tolist()
    assert (len(examples), examples.targets(np.array([2, 0])), examples.targets(np.array([1]))) == (3, 5, 1)


@pytest.mark.parametrize(("size", "of"), [(1, 1), (2, 1), (1, 2), (9, 1)])
def test_the_test_split_has_every_word_once_whatever_the_batches(folder: Path, size: int, of: int) -> None:
    split, pairs = Words(folder), list[tuple[int, int]]()
    for rank in range(of):
        for batch in split.batches(size, rank, of):
            is_real = batch.examples >= 0
            assert not batch.targets[~is_real].any(), "a valid label, which is not counted"
            pairs += zip(batch.examples[is_real].tolist(), batch.targets[is_real].tolist(), strict=True)
    assert sorted(pairs) == [(0, 0), (0, 2), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert (split.tokens.tolist(), split.bytes.tolist()) == ([2, 1, 3], [9, 3, 12])


def test_targets_are_end_to_end_in_the_order_of_the_texts(folder: Path) -> None:
    assert targets(folder, "test").tolist() == [2, 0, 1, 0, 1, 2]
    tokens, sizes = lengths(folder, "test")
    assert (tokens.tolist(), sizes.tolist()) == ([2, 1, 3], [9, 3, 12])
