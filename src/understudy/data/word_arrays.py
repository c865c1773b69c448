"""Words with a label each as arrays: the tokens of each text, and a label at the first token of each word."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data.loader import IGNORED, Indices, LabelledExamples
from understudy.data.measured import Batch, Integers, Labelled

INPUTS = "inputs"
"""SPLIT.inputs.npy, int32 (N, L): the tokens of each text, padded. SPLIT.labels.npy, int64 (N, L), is IGNORED where no
word begins, and SPLIT.bytes.npy, int64 (N,), has the bytes of each text."""


class WordExamples(LabelledExamples):
    """Texts with a label for each word: inputs int32 (B, L), labels int64 (B, L)."""

    def __init__(self, folder: Path, split: str) -> None:
        super().__init__(folder, split, INPUTS)
        self._targets = (self._labels != IGNORED).sum(axis=1)

    def targets(self, indices: Indices) -> int:
        """The number of words of these texts together."""
        return int(self._targets[indices].sum())


class Words(Labelled):
    """The test split of texts with a label for each word: a prediction for each word."""

    def __init__(self, folder: Path, split: str = "test") -> None:
        super().__init__(folder, INPUTS, split)
        self.tokens, self.bytes = lengths(folder, split)

    def batches(self, size: int, rank: int = 0, of: int = 1) -> Iterator[Batch]:
        """This share's batches of texts, in order; tokens within words and padding belong to no example."""
        for whole in super().batches(size, rank, of):
            is_word = whole.targets != IGNORED
            examples = np.where(is_word, whole.examples[:, None], -1)
            yield Batch(whole.inputs, np.where(is_word, whole.targets, 0), examples)


def targets(folder: Path, split: str) -> NDArray[Any]:
    """The labels of all words of a split, end to end."""
    labels: NDArray[Any] = np.load(folder / f"{split}.labels.npy")
    return labels[labels != IGNORED]


def lengths(folder: Path, split: str) -> tuple[Integers, Integers]:
    """The number of words with a label, and of bytes, of each text of a split."""
    labels: Integers = np.load(folder / f"{split}.labels.npy")
    sizes: Integers = np.load(folder / f"{split}.bytes.npy")
    return (labels != IGNORED).sum(axis=1), sizes
