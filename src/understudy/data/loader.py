"""Examples -> batches: memory-mapped arrays, one gather per batch, and an order that follows from the step number.

There is no state: a rank's batch is a function of (seed, step, rank, world size), so a run that resumes at a step
reads exactly the batches of an uninterrupted run, on any number of ranks.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.models.facts import Facts, read_facts
from understudy.recipe.tasks import load

IGNORED = -100  # the label of a position without a target

Indices = NDArray[np.int64]


class Examples(Protocol):
    """One split of an examples object."""

    def __len__(self) -> int: ...

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs, and int64 labels of the shape of the predictions: (B,) or (B, L). IGNORED is no target."""

    def positions(self, indices: Indices) -> Tensor | None:
        """Each token's position in its document, int64 (B, L); None unless documents are kept apart."""

    def targets(self, indices: Indices) -> int:
        """The number of targets of these examples together."""


class LabelledExamples:
    """Inputs of one shape with labels int64 (B,): one target each. Images are uint8 (B, C, S, S).

    Args:
        folder: that of an examples object.
        split: its name.
        inputs: the name of the inputs in SPLIT.NAME.npy.
    """

    def __init__(self, folder: Path, split: str, inputs: str) -> None:
        self._inputs = np.load(folder / f"{split}.{inputs}.npy", mmap_mode="r")
        self._labels = np.load(folder / f"{split}.labels.npy")

    def __len__(self) -> int:
        return len(self._labels)

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these examples."""
        return torch.from_numpy(self._inputs[indices]), torch.from_numpy(self._labels[indices])

    def positions(self, indices: Indices) -> None:
        """One label belongs to the whole input."""

    def targets(self, indices: Indices) -> int:
        """The number of targets of these examples together."""
        return len(indices)


class TextExamples:
    """Windows over all documents end to end: inputs int64 (B, L), labels the tokens that follow.

    The last window is padded; padding has no targets.
    """

    def __init__(self, folder: Path, split: str, length: int, eos: int) -> None:
        self._tokens = np.load(folder / f"{split}.tokens.npy", mmap_mode="r")
        self._length, self._eos = length, eos
        self._count = -(-(len(self._tokens) - 1) // length)

    def __len__(self) -> int:
        return self._count

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these windows."""
        positions = indices[:, None] * self._length + np.arange(self._length + 1)
        last = len(self._tokens) - 1
        windows = torch.from_numpy(self._tokens[np.minimum(positions, last)].astype(np.int64))
        inputs, labels = windows[:, :-1].clone(), windows[:, 1:].clone()  # contiguous() gives views of a single window
        if len(indices) and positions[:, -1].max() > last:
            beyond = torch.from_numpy(positions[:, 1:] > last)
            inputs[beyond], labels[beyond] = self._eos, IGNORED
        return inputs, labels

    def positions(self, indices: Indices) -> None:
        """A model takes a window as one text, whichever documents are in it."""

    def targets(self, indices: Indices) -> int:
        """The number of targets of these windows together."""
        ends = np.minimum((indices + 1) * self._length, len(self._tokens) - 1)
        return int((ends - indices * self._length).sum())


class BegunExamples(TextExamples):
    """The same windows with a first token before each document, as context: it is never a target.

    The files do not have it. Positions in the stream count it, positions in the files do not.
    """

    def __init__(self, folder: Path, split: str, length: int, eos: int, first: int) -> None:
        super().__init__(folder, split, length, eos)
        starts: Indices = np.load(folder / f"{split}.offsets.npy")[:-1]
        self._first = first
        self._begins = starts + np.arange(len(starts))
        self._last = len(self._tokens) + len(starts) - 1
        self._count = -(-self._last // length)

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these windows."""
        positions = indices[:, None] * self._length + np.arange(self._length + 1)  # in the stream
        documents = np.searchsorted(self._begins, positions, side="right")  # that have begun there
        is_first = self._begins[np.maximum(documents - 1, 0)] == positions
        in_file = self._tokens[np.clip(positions - documents, 0, len(self._tokens) - 1)].astype(np.int64)
        tokens = np.where(is_first, self._first, in_file)
        inputs, labels = tokens[:, :-1].copy(), np.where(is_first, IGNORED, in_file)[:, 1:].copy()
        is_beyond = positions[:, 1:] > self._last
        inputs[is_beyond], labels[is_beyond] = self._eos, IGNORED
        return torch.from_numpy(inputs), torch.from_numpy(labels)

    def targets(self, indices: Indices) -> int:
        """The number of targets of these windows together."""
        starts = indices * self._length
        ends = np.minimum(starts + self._length, self._last)
        begins_before_end, begins_before_start = (
            np.searchsorted(self._begins, bound, side="right") for bound in (ends, starts)
        )
        return int((ends - starts - (begins_before_end - begins_before_start)).sum())


class PackedExamples:
    """Sequences of whole documents, packed by packing.py: inputs int64 (B, L), labels the tokens that follow.

    A document's inputs begin with the token that begins every document, as in evaluation: each of its tokens is a
    target, predicted from those before it in the same document. Padding at the end of a sequence is a document
    without targets.
    """

    def __init__(self, folder: Path, split: str, length: int, eos: int, first: int) -> None:
        self._tokens = np.load(folder / f"{split}.tokens.npy", mmap_mode="r")
        self._pieces = np.load(folder / f"{split}.pieces.npy", mmap_mode="r")
        self._first = np.load(folder / f"{split}.sequences.npy")
        self._targets = np.diff(np.append(0, np.cumsum(self._pieces[:, 1]))[self._first])
        self._length, self._eos, self._first_token = length, eos, first
        self._begins = np.load(folder / f"{split}.offsets.npy")[:-1] if first != eos else np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._targets)

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these sequences."""
        targets, _ = self._target_indices(indices)
        labels = self._labels(targets)
        inputs = np.where(targets > 0, self._tokens[np.maximum(targets - 1, 0)].astype(np.int64), self._eos)
        inputs[np.isin(targets, self._begins)] = self._first_token
        return torch.from_numpy(inputs), torch.from_numpy(labels)

    def _labels(self, targets: Indices) -> Indices:
        """The labels for indices of target tokens, -1 for none."""
        return np.where(targets < 0, IGNORED, self._tokens[targets].astype(np.int64))

    def positions(self, indices: Indices) -> Tensor:
        """Each token's position in its document, int64 (B, L)."""
        return torch.from_numpy(self._target_indices(indices)[1])

    def targets(self, indices: Indices) -> int:
        """The number of targets of these sequences together."""
        return int(self._targets[indices].sum())

    def _target_indices(self, indices: Indices) -> tuple[Indices, Indices]:
        """For each position the index of its target token, -1 for none, and its position in its document."""
        targets = np.full((len(indices), self._length), -1)
        within = np.empty_like(targets)
        for row, index in enumerate(indices.tolist()):
            starts, lengths = self._pieces[self._first[index] : self._first[index + 1]].T
            filled = self._targets[index]
            within[row, :filled] = np.arange(filled) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            within[row, filled:] = np.arange(self._length - filled)
            targets[row, :filled] = np.repeat(starts, lengths) + within[row, :filled]
        return targets, within


class Opens(Protocol):
    """A task, as the loader sees it."""

    def open_split(self, folder: Path, split: str, facts: Facts) -> Examples:
        """Open one split of an examples object whose examples.json has these facts."""


def open_split(folder: Path, split: str) -> Examples:
    """Open one split of an examples object."""
    facts = read_facts(folder)
    return cast("Opens", load(facts["task"])).open_split(folder, split, facts)


@dataclass(frozen=True)
class Order:
    """The examples of each step: every epoch is a new permutation, whose last batch may be short."""

    examples: int
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Steps that show every example once."""
        return -(-self.examples // self.batch_size)

    def batch(self, step: int) -> Indices:
        """The indices of a step's global batch."""
        epoch, position = divmod(step, self.steps_per_epoch)
        return _permutation(self.examples, self.seed, epoch)[
            position * self.batch_size : (position + 1) * self.batch_size
        ]

    def places(self, rank: int, world_size: int, parts: int) -> list[slice]:
        """The positions in a batch of the examples that a rank reads, in `parts` micro-batches.

        The slices are fixed positions of a full batch; in a short one the last of them are short or empty.
        """
        width = part_width(self.batch_size, world_size, parts)
        starts = ((part * world_size + rank) * width for part in range(parts))
        return [slice(start, start + width) for start in starts]


def part_width(batch_size: int, readers: int, parts: int) -> int:
    """Examples in each of the micro-batches that a reader splits its share of a batch into."""
    return batch_size // (readers * parts)


@lru_cache(maxsize=2)
def _permutation(examples: int, seed: int, epoch: int) -> Indices:
    return np.random.default_rng([seed, epoch]).permutation(examples)
