"""The records of a source, before they are checked and split."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

Split = Literal["train", "validation", "test"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


EMPTY = "is empty"
"""The reason of a record without content: it is skipped and counted, but not an error."""


NO_FIELDS: Mapping[str, bytes] = MappingProxyType({})


class Raw(NamedTuple):
    """One record, with the fields that its task declares."""

    name: str
    content: bytes
    """The first field: an encoded image, or a text's UTF-8 bytes."""
    label: str | None = None
    split: Split | None = None
    """The split that the source names; None if it names none."""
    others: Mapping[str, bytes] = NO_FIELDS
    """The fields after the first one, by name."""


class Broken(NamedTuple):
    """A record, or a whole file of them, that the source could not read."""

    name: str
    reason: str


class Reading(NamedTuple):
    """An open source: its records in a fixed order, and the most that there are."""

    total: int
    records: Iterator[Raw | Broken]
    notes: tuple[str, ...] = ()
    """Notes on unexpected ways in which names and folders are read."""
    split_sizes: Mapping[Split, int] = MappingProxyType({})
    """Number of records in each split by the names of files and folders; a split column is read later. Ingest may
    skip some, and it moves copies of test records from training to the test split."""


class Checked(NamedTuple):
    """A valid record."""

    record: Raw
    key: str
    """It decides the split: equal for copies of one record that differ only in form, such as line ends."""
    note: str = ""
    """A fact that the user may not expect, as the end of a sentence; records with the same note are counted."""
