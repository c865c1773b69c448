"""What a source yields, before it is checked and split."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

Split = Literal["train", "validation", "test"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class Raw(NamedTuple):
    """One record: an encoded image or a document's UTF-8 bytes."""

    name: str
    content: bytes
    label: str | None = None
    split: Split | None = None
    """The split that the source says; None where it says none."""


class Broken(NamedTuple):
    """A record, or a whole file of them, that the source could not read."""

    name: str
    reason: str


class Reading(NamedTuple):
    """A source opened: its records in a fixed order, and at most how many there are."""

    total: int
    records: Iterator[Raw | Broken]
    notes: tuple[str, ...] = ()
    """What a user may not expect of how names and folders are read."""
    split_sizes: Mapping[Split, int] = MappingProxyType({})
    """How many records lie in each split by the names of files and folders; a column says it later. Ingest may leave
    some out, and it moves copies of test records that lie in training to them."""
