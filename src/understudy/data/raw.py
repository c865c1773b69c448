"""What a source yields, before anything is decided about it."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

Split = Literal["train", "validation", "test"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
SPLIT_NAMES: dict[str, Split] = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
}


class Raw(NamedTuple):
    """One record: an encoded image or a document's UTF-8 bytes."""

    name: str
    content: bytes
    label: str | None = None
    split: Split | None = None
    """The source's own word on it; None where the source has none."""


class Broken(NamedTuple):
    """A record, or a whole file of them, that the source could not read."""

    name: str
    reason: str


class Reading(NamedTuple):
    """A source opened: its records in a fixed order, and at most how many there are."""

    total: int
    records: Iterator[Raw | Broken]
