"""A folder of cached logits, memory-mapped, read at random by example."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import InputError, UnderstudyError
from understudy.teachers.cache.codec import decode
from understudy.teachers.cache.layout import INDEX, open_part, part_files, read_block, read_description, read_tables
from understudy.teachers.cache.sparse import Sparse

Indices = NDArray[np.int64]


class CachedLogits:
    """The distributions of a teacher for the positions of examples.

    Args:
        folder: one that finish() completed. Its files may be of any origin: sizes are checked here, and checksums and
            all values as they are read.

    Raises:
        UnderstudyError: a file is missing or damaged, or the folder is not complete.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._description = read_description(folder)
        if not self._description.complete:
            raise UnderstudyError(f"{folder}: is not complete. Run what writes it again.")
        self._tables = read_tables(folder, self._description)
        numbers = range(self._description.parts)
        parts = [open_part(folder, number, self._description.in_part(number)) for number in numbers]
        self._index = np.concatenate([part.rows for part in parts]) if parts else np.zeros(0, INDEX)
        self._starts = np.concatenate([part.starts[:-1] for part in parts]) if parts else np.zeros(0, np.int64)
        self._map = lru_cache(maxsize=1024)(self._mapped)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def facts(self) -> dict[str, Any]:
        """What the writer said of teacher, examples, tokenizer, temperature and method."""
        return self._description.facts

    @property
    def statistics(self) -> dict[str, float | int | None]:
        """Positions, bytes, and means by position: entries, the tail's mass, KL divergence from the teacher."""
        return self._description.statistics

    @property
    def vocabulary(self) -> int:
        """The number of classes."""
        return self._description.vocabulary

    def check(self, expected: Mapping[str, Any]) -> None:
        """Compare facts by name.

        Raises:
            InputError: one differs, or is not there.
        """
        for name, value in expected.items():
            if self.facts.get(name) != value:
                raise InputError(
                    f"{self._folder}: the cached logits have {name} {self.facts.get(name)}, not {value}. "
                    "Cache the teacher's logits again, or use those of the same teacher and data."
                )

    def count(self, indices: Indices) -> Indices:
        """The number of positions of each example."""
        return self._index["positions"][self._checked(indices)].astype(np.int64)

    def read(self, indices: Indices) -> Sparse:
        """The distributions at all positions of these examples, in their order.

        Raises:
            UnderstudyError: a block is damaged.
        """
        blocks = [self._block(example) for example in self._checked(indices).tolist()]
        lengths = np.concatenate([np.zeros(1, np.int64), *(block[0] for block in blocks)])
        streams = np.concatenate([np.zeros(0, np.uint8), *(block[1] for block in blocks)])
        try:
            return decode(streams, np.cumsum(lengths), self._tables)
        except UnderstudyError as error:
            examples = self._checked(indices)
            if len(examples) > 1:
                for example in examples:
                    self.read(np.array([example]))
            raise self._damaged(int(examples[0]), error) from None

    def _checked(self, indices: Indices) -> Indices:
        indices = np.asarray(indices, np.int64)
        if len(indices) and (indices.min() < 0 or indices.max() >= len(self)):
            raise InputError(f"{self._folder}: has {len(self):,} examples, not {indices.min()} to {indices.max()}")
        return indices

    def _block(self, example: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        row = self._index[example]
        start = int(self._starts[example])
        block = self._map(example // self._description.examples_per_part)[start : start + int(row["bytes"])]
        try:
            return read_block(block, row)
        except UnderstudyError as error:
            raise self._damaged(example, error) from None

    def _mapped(self, number: int) -> NDArray[np.uint8]:
        """The bytes of a part; a plain array, whose slices are cheaper than a memmap's."""
        return np.asarray(np.memmap(part_files(self._folder, number)[0], np.uint8, mode="r"))

    def _damaged(self, example: int, error: UnderstudyError) -> UnderstudyError:
        number = example // self._description.examples_per_part
        path = part_files(self._folder, number)[0]
        return UnderstudyError(
            f"{path}: example {example} (part {number}) is damaged: {error}. Cache the logits again."
        )
