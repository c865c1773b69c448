"""A split of conversations as it is measured and shown; conversation_arrays.py writes its arrays."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data.conversation_arrays import ANSWERS
from understudy.data.measured import Batch, Integers
from understudy.data.prompts import Prompts, of_answers
from understudy.models.facts import TOKENIZER


class Conversations:
    """The test split of conversations, memory-mapped: a prediction for each learned token, in one window each.

    Args:
        folder: the folder of an `examples` object.
        length: the models' sequence length.
        ends: the tokens that end an answer.
        split: the split's name.
    """

    def __init__(self, folder: Path, length: int, ends: frozenset[int], split: str = "test") -> None:
        self._folder = folder
        self._ids = np.load(folder / f"{split}.tokens.npy", mmap_mode="r")
        self._learned = np.load(folder / f"{split}.learned.npy", mmap_mode="r")
        self._offsets: Integers = np.load(folder / f"{split}.offsets.npy")
        self._length = length
        self.tokens, self.bytes = lengths(folder, split)
        answer_begins, answer_ends = (np.load(folder / f"{split}.{name}.npy") for name in ANSWERS)
        self.prompts = of_answers(self._offsets, answer_begins, answer_ends, length, ends)
        inputs = np.diff(self._offsets) - 1
        self._order = np.argsort(-inputs, kind="stable")[: int((inputs > 0).sum())]

    def batch_count(self, size: int) -> int:
        """The number of batches."""
        return -(-len(self._order) // size)

    def batches(self, size: int, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """This share's batches of conversations, the long ones first: a batch then has little padding."""
        for start in range(size * rank, len(self._order), size * world_size):
            rows = self._order[start : start + size]
            begins, counts = self._offsets[rows, None], (self._offsets[rows + 1] - self._offsets[rows] - 1)[:, None]
            steps = np.arange(counts.max())
            is_token = steps < counts
            places = begins + np.where(is_token, steps, 0)
            is_learned = is_token & self._learned[places + 1]
            examples = np.where(is_learned, rows[:, None], -1)
            yield Batch(self._ids[places].astype(np.int64), self._ids[places + 1].astype(np.int64), examples)

    def sample(self, size: int) -> NDArray[Any]:
        """Inputs for timing: full sequences from the start of the split."""
        places = np.arange(size * self._length) % len(self._ids)
        return np.array(self._ids[places], dtype=np.int64).reshape(size, -1)

    def prompt_inputs(self, prompts: Prompts) -> list[Integers]:
        """The conversations up to their last answer."""
        ranges = zip(prompts.begins, prompts.ends, strict=True)
        return [self._ids[begin:end].astype(np.int64) for begin, end in ranges]

    def frequent_answer(self) -> Integers:
        """The tokens of the training split's most frequent last answer; of several, the first by its tokens."""
        tokens = np.load(self._folder / "train.tokens.npy", mmap_mode="r")
        offsets, *places = (np.load(self._folder / f"train.{name}.npy") for name in ("offsets", *ANSWERS))
        ranges = zip(*(offsets[:-1] + place for place in places), strict=True)
        counts = Counter(tuple(tokens[begin:end].tolist()) for begin, end in ranges)
        del counts[()]
        return np.array(min(counts, key=lambda answer: (-counts[answer], answer), default=()), dtype=np.int64)


def lengths(folder: Path, split: str) -> tuple[Integers, Integers]:
    """The number of learned tokens, and of the bytes of the learned turns, of each conversation."""
    learned, offsets = np.load(folder / f"{split}.learned.npy"), np.load(folder / f"{split}.offsets.npy")
    sizes: Integers = np.load(folder / f"{split}.bytes.npy")
    counts: Integers = np.diff(np.concatenate([[0], np.cumsum(learned)])[offsets])
    return counts, sizes


def targets(folder: Path, split: str) -> NDArray[Any]:
    """The learned tokens of a split, end to end."""
    tokens: NDArray[Any] = np.load(folder / f"{split}.tokens.npy", mmap_mode="r")
    learned: NDArray[Any] = tokens[np.load(folder / f"{split}.learned.npy")]
    return learned


def parts(folder: Path, split: str, count: int) -> list[list[tuple[str, bool]]]:
    """The texts of the first conversations, cut where learned tokens begin or end; True for those that are learned."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    offsets = np.load(folder / f"{split}.offsets.npy", mmap_mode="r")
    tokens, learned = (np.load(folder / f"{split}.{name}.npy", mmap_mode="r") for name in ("tokens", "learned"))
    shown = []
    for example in np.flatnonzero(np.diff(offsets))[:count].tolist():
        ids, mask = (array[offsets[example] : offsets[example + 1]] for array in (tokens, learned))
        cuts = [0, *(np.flatnonzero(np.diff(mask)) + 1).tolist(), len(ids)]
        texts = [tokenizer.decode(ids[start:end].tolist(), skip_special_tokens=False) for start, end in pairwise(cuts)]
        shown.append([(text, bool(mask[start])) for text, start in zip(texts, cuts, strict=False)])
    return shown
