"""Examples -> batches: memory-mapped arrays, one gather per batch, and an order that follows from a step number.

There is no state: what a rank reads at a step is a function of (seed, step, rank, world size), so a run that resumes
at a step reads exactly what it would have read, on any number of ranks.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.models.facts import read_facts

IGNORED = -100  # the label of a position without a target

Indices = NDArray[np.int64]


class Examples(Protocol):
    """One split of an examples object."""

    def __len__(self) -> int: ...

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these examples."""

    def targets(self, indices: Indices) -> int:
        """How many targets these examples have together."""


class ImageExamples:
    """Images uint8 (B, C, S, S) with labels int64 (B,): one target each."""

    def __init__(self, folder: Path, split: str) -> None:
        self._images = np.load(folder / f"{split}.images.npy", mmap_mode="r")
        self._labels = np.load(folder / f"{split}.labels.npy")

    def __len__(self) -> int:
        return len(self._labels)

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these examples."""
        return torch.from_numpy(self._images[indices]), torch.from_numpy(self._labels[indices])

    def targets(self, indices: Indices) -> int:
        """How many targets these examples have together."""
        return len(indices)


class TextExamples:
    """Windows over all documents end to end: inputs int64 (B, L), labels the tokens that follow.

    The last window is shorter; it is filled up, and its filling has no targets.
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

    def targets(self, indices: Indices) -> int:
        """How many targets these windows have together."""
        ends = np.minimum((indices + 1) * self._length, len(self._tokens) - 1)
        return int((ends - indices * self._length).sum())


def open_split(folder: Path, split: str) -> Examples:
    """One split of an examples object."""
    facts = read_facts(folder)
    if facts["task"] == "causal-lm":
        return TextExamples(folder, split, facts["sequence_length"], facts["eos_id"])
    return ImageExamples(folder, split)


@dataclass(frozen=True)
class Order:
    """Which examples make up which step: every epoch a new permutation, its last batch as short as it comes."""

    examples: int
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Steps that show every example once."""
        return -(-self.examples // self.batch_size)

    def batch(self, step: int) -> Indices:
        """The indices of a step's global batch."""
        epoch, place = divmod(step, self.steps_per_epoch)
        return _permutation(self.examples, self.seed, epoch)[place * self.batch_size : (place + 1) * self.batch_size]

    def places(self, rank: int, world_size: int, parts: int) -> list[slice]:
        """Where in a batch the examples are that a rank reads, in `parts` micro-batches.

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
