"""The test split as it is measured: batches of inputs and targets, each target with the example that it belongs to.

An example with a label is one prediction. A document is one prediction per token, in windows of the recipe's sequence
length. A window's first token is predicted from the token before it alone, the document's first from the tokenizer's
BOS, or from the end-of-text token if it adds none. A window begins a stride after the one before it. If the stride is
shorter than the window, they overlap, and only tokens outside earlier windows are counted; the last window begins
earlier, so that it is as long as the others. These are the windows of lm-eval's rolling log-likelihood with a context
of `length - stride + 1` tokens (Gao et al. 2021). Every token is counted once, so sums over windows are sums over
documents.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from understudy.data import prompts
from understudy.data.prompts import Prompts

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Inputs of a model; targets, and the example of each target, of one shape.

    An example of -1 is padding, or context that an earlier window has counted; its target is any class.
    """

    inputs: NDArray[Any]
    targets: Integers
    examples: Integers


class TestSplit(Protocol):
    """A test split."""

    tokens: Integers
    """The number of predictions of each example."""
    bytes: Integers
    """The number of UTF-8 bytes of each example; 0 if it is no text."""
    prompts: Prompts
    """The examples to continue."""

    def batch_count(self, size: int) -> int:
        """The number of batches."""

    def batches(self, size: int, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """The batches `rank`, `rank + of`, `rank + 2 * of`, ..."""

    def sample(self, size: int) -> NDArray[Any]:
        """Inputs for timing."""

    def prompt_inputs(self, prompts: Prompts) -> list[Integers]:
        """The inputs of some of the prompts."""

    def frequent_answer(self) -> Integers:
        """The tokens of the training split's most frequent answer; none if examples have no answer to generate."""


class Labelled:
    """The test split of labelled examples, memory-mapped; `inputs` is the name of their inputs in SPLIT.NAME.npy."""

    def __init__(self, folder: Path, inputs: str, split: str = "test") -> None:
        self.inputs = np.load(folder / f"{split}.{inputs}.npy", mmap_mode="r")
        self.labels: Integers = np.load(folder / f"{split}.labels.npy")
        self.tokens: Integers = np.ones(len(self.labels), dtype=np.int64)
        self.bytes: Integers = np.zeros(len(self.labels), dtype=np.int64)
        self.prompts = prompts.NONE

    def batch_count(self, size: int) -> int:
        """The number of batches."""
        return -(-len(self.labels) // size)

    def batches(self, size: int, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """This share's batches of examples, in order."""
        for start in range(size * rank, len(self.labels), size * world_size):
            rows = slice(start, start + size)
            labels = self.labels[rows]
            yield Batch(np.array(self.inputs[rows]), labels, np.arange(start, start + len(labels)))

    def sample(self, size: int) -> NDArray[Any]:
        """Inputs for timing: the first examples, repeated if there are too few."""
        return np.array(self.inputs[np.arange(size) % len(self.labels)])

    def prompt_inputs(self, prompts: Prompts) -> list[Integers]:
        """None: an example with a label is not continued."""
        del prompts
        return []

    def frequent_answer(self) -> Integers:
        """None: a label is not generated."""
        return prompts.NO_EXAMPLES


class Documents:
    """The test split of documents, memory-mapped, as windows of `length` tokens, `stride` tokens apart."""

    def __init__(self, folder: Path, length: int, first: int, stride: int, split: str = "test") -> None:
        self.text = np.load(folder / f"{split}.tokens.npy", mmap_mode="r")
        self.length, self.first = length, first
        self.bytes: Integers = np.load(folder / f"{split}.bytes.npy")
        self.offsets: Integers = np.load(folder / f"{split}.offsets.npy")
        self.tokens: Integers = np.diff(self.offsets)
        self.prompts = prompts.of_documents(self.offsets, length)
        windows = np.where(self.tokens > 0, 1 - np.minimum(0, length - self.tokens) // stride, 0)
        self.documents = np.repeat(np.arange(len(self.tokens)), windows)
        nth = np.arange(len(self.documents)) - np.repeat(np.cumsum(windows) - windows, windows)
        ends = np.minimum(length + nth * stride, self.tokens[self.documents])
        starts = nth * stride if stride == length else np.maximum(ends - length, 0)
        self.begins = self.offsets[self.documents]
        """Where each window's document begins."""
        self.starts, self.lengths = self.offsets[self.documents] + starts, ends - starts
        self.seen = np.where(nth > 0, length + (nth - 1) * stride - starts, 0)
        """Tokens at a window's start that earlier windows have counted."""

    def batch_count(self, size: int) -> int:
        """The number of batches."""
        return -(-len(self.starts) // size)

    def batches(self, size: int, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """This share's batches of windows, the long ones first: a batch then has similar lengths and little padding."""
        order = np.argsort(-self.lengths, kind="stable")
        for start in range(size * rank, len(order), size * world_size):
            rows = order[start : start + size]
            steps = np.arange(self.lengths[rows].max())
            real = steps < self.lengths[rows, None]
            places = np.where(real, self.starts[rows, None] + steps, self.starts[rows, None])
            before = np.where(places == self.begins[rows, None], self.first, self.text[places - 1])
            counted = real & (steps >= self.seen[rows, None])
            examples = np.where(counted, self.documents[rows, None], -1)
            yield Batch(before.astype(np.int64), self.text[places].astype(np.int64), examples)

    def prompt_inputs(self, prompts: Prompts) -> list[Integers]:
        """The beginnings of documents, after the first token."""
        ranges = zip(prompts.begins, prompts.ends, strict=True)
        return [np.concatenate([[self.first], self.text[begin:end]]).astype(np.int64) for begin, end in ranges]

    def frequent_answer(self) -> Integers:
        """None: a document has no answer."""
        return prompts.NO_EXAMPLES

    def sample(self, size: int) -> NDArray[Any]:
        """Inputs for timing: full windows from the start of the split."""
        return np.array(self.text[np.arange(size * self.length) % len(self.text)], dtype=np.int64).reshape(size, -1)
