"""Words with a label each as arrays: the tokens of each text, and a label at the first token of each word."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data.loader import IGNORED, Indices, LabelledExamples
from understudy.data.measured import Batch, Integers, Labelled
from understudy.data.npy import NpyFile
from understudy.data.raw import SPLITS
from understudy.data.records import Content
from understudy.data.words import labels_of, text_of
from understudy.errors import InputError

INPUTS = "inputs"
"""SPLIT.inputs.npy, int32 (N, L): the tokens of each text, padded. SPLIT.labels.npy, int64 (N, L), is IGNORED where no
word begins, and SPLIT.bytes.npy, int64 (N,), has the bytes of each text."""
FirstTokens = Callable[[str, Any], list[int | None]]
"""From a text and its encoding to the index of each word's first token; None for a word without one."""


def pad(tokenizer: Any, padding: int, length: int) -> None:
    """Let a tokenizer give `length` tokens for every text.

    Raises:
        InputError: its special tokens leave no room for text.
    """
    least = tokenizer.num_special_tokens_to_add(False) + 1  # noqa: FBT003  # tokenizers takes it by position
    if length < least:
        raise InputError(f"data.text.sequence_length: {length} leaves no room for text; {least} is the least here.")
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(pad_id=padding, length=length)


def write(
    batches: Iterator[list[Content]],
    tokenizer: Any,
    first_tokens: FirstTokens,
    labels: Sequence[str],
    length: int,
    folder: Path,
) -> list[str]:
    """Write the arrays of all splits, in the records' order.

    Args:
        batches: the records.
        tokenizer: a tokenizers.Tokenizer that truncates and pads to `length` (pad).
        first_tokens: where the words begin.
        labels: all labels, in their order.
        length: tokens of each text.
        folder: output folder.

    Returns:
        Notes for the user: the number of words without a token.
    """
    index, missing = {label: number for number, label in enumerate(labels)}, 0
    with ExitStack() as stack:
        inputs = {s: stack.enter_context(NpyFile(folder / f"{s}.{INPUTS}.npy", np.int32, (length,))) for s in SPLITS}
        targets = {s: stack.enter_context(NpyFile(folder / f"{s}.labels.npy", np.int64, (length,))) for s in SPLITS}
        sizes = {s: stack.enter_context(NpyFile(folder / f"{s}.bytes.npy", np.int64)) for s in SPLITS}
        for batch in batches:
            texts = [text_of(record) for record in batch]
            for record, text, encoding in zip(batch, texts, tokenizer.encode_batch(texts), strict=True):
                row = np.full(length, IGNORED)
                for label, first in zip(labels_of(record), first_tokens(text, encoding), strict=True):
                    if first is None:
                        missing += 1
                    else:
                        row[first] = index[label]
                inputs[record.split].append(np.array([encoding.ids]))
                targets[record.split].append(row[np.newaxis])
                sizes[record.split].append(np.array([len(text.encode())]))
    return [_note(missing, length)] if missing else []


def _note(missing: int, length: int) -> str:
    return (
        f"{missing:,} words have no token of their own among the first {length} of their text "
        "(data.text.sequence_length), and are neither trained nor measured"
    )


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

    def batches(self, size: int, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """This share's batches of texts, in order; tokens within words and padding belong to no example."""
        for batch in super().batches(size, rank, world_size):
            is_word = batch.targets != IGNORED
            examples = np.where(is_word, batch.examples[:, None], -1)
            yield Batch(batch.inputs, np.where(is_word, batch.targets, 0), examples)


def shown(folder: Path, number: int, labels: Sequence[str], padding: int) -> str:
    """A test text as its model sees it, and the labels of its words in the next line."""
    from understudy.data.padded_tokenizer import readable

    tokens = np.load(folder / f"test.{INPUTS}.npy", mmap_mode="r")[number]
    targets = np.load(folder / "test.labels.npy", mmap_mode="r")[number]
    return f"{readable(folder, tokens, padding)}\n{' '.join(labels[target] for target in targets[targets != IGNORED])}"


def targets(folder: Path, split: str) -> NDArray[Any]:
    """The labels of all words of a split, end to end."""
    labels: NDArray[Any] = np.load(folder / f"{split}.labels.npy")
    of_words: NDArray[Any] = labels[labels != IGNORED]
    return of_words


def lengths(folder: Path, split: str) -> tuple[Integers, Integers]:
    """The number of words with a label, and of bytes, of each text of a split."""
    labels: Integers = np.load(folder / f"{split}.labels.npy")
    sizes: Integers = np.load(folder / f"{split}.bytes.npy")
    counts: Integers = (labels != IGNORED).sum(axis=1)
    return counts, sizes
