"""The words of a record and their labels: two texts with white space between words, and between labels."""

from collections.abc import Iterator
from pathlib import Path

from understudy.data.documents import check_document
from understudy.data.raw import EMPTY, Broken, Checked, Raw
from understudy.data.records import Content, read
from understudy.errors import InputError
from understudy.store.files import sha256

LABELS = "labels"
"""The field of the labels; the words are the first field."""
SHOWN = 10
"""Labels in a message."""


def check_words(record: Raw) -> Checked | Broken:
    """Check that both texts are UTF-8, and that there are as many labels as words.

    The words alone decide the split: the same text with other labels is in the same split.

    Raises:
        UnicodeDecodeError: a text is not UTF-8.
    """
    checked = check_document(record)
    if isinstance(checked, Broken):
        return checked
    words, labels = (text.decode().split() for text in (record.content, record.others[LABELS]))
    if not words:
        return Broken(record.name, EMPTY)
    if len(words) != len(labels):
        return Broken(record.name, f"has {len(words)} words and {len(labels)} labels")
    return checked._replace(key=sha256(" ".join(words).encode()))


def text_of(record: Content) -> str:
    """The words, with one space between two."""
    return " ".join(record.content.decode().split())


def labels_of(record: Content) -> list[str]:
    """The label of each word."""
    return record.others[LABELS].decode().split()


def training_texts(records: Path) -> Iterator[str]:
    """The texts of the training split."""
    return (text_of(record) for batch in read(records, "train") for record in batch)


def training_labels(records: Path) -> list[str]:
    """The labels of the training split, sorted."""
    return sorted({label for batch in read(records, "train") for record in batch for label in labels_of(record)})


def check_labels(records: Path, labels: list[str], section: str = "data.source") -> None:
    """Reject a single label, and labels that are not among those of training.

    Args:
        records: the folder of the records.
        labels: those of training.
        section: the data's path in the recipe, for errors.

    Raises:
        InputError: there is one label, or a record has another one.
    """
    if len(labels) < 2:
        raise InputError(f"{section}: all words have the label {labels[0]}. A classifier needs two labels or more.")
    unseen = {
        (record.split, label)
        for batch in read(records)
        for record in batch
        for label in set(labels_of(record)).difference(labels)
    }
    if unseen:
        split = min(split for split, _ in unseen)
        names = ", ".join(sorted(label for its_split, label in unseen if its_split == split)[:SHOWN])
        raise InputError(
            f"{section}: the {split} split has labels that training never saw: {names}. Remove them or add training "
            "texts with them."
        )
