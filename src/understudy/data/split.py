"""Assignment of records to splits, by their content alone.

So the split is the same on every machine, equal content is in one split, and later records do not move others, except
one that was put into training for its label. Records of the source's own validation or test split stay there.
"""

from collections.abc import Sequence

from understudy.data.raw import SPLITS, Split


def assign(records: Sequence[tuple[str, Split | None]], validation: float, test: float) -> tuple[list[Split], int]:
    """Split records by content.

    Args:
        records: the SHA-256 of each, and its split in the source.
        validation: share of the records outside the source's test split, unless it has a validation split.
        test: share of all, unless the source has a test split.

    Returns:
        Each record's split, and the number of records that were moved because equal content is in another split.
    """
    source_splits = {split for _, split in records}
    test = 0 if "test" in source_splits else test
    validation = 0 if "validation" in source_splits else validation
    targets = [_by_hash(id_, validation, test) if split in (None, "train") else split for id_, split in records]
    sides: dict[str, Split] = {}
    for (id_, _), split in zip(records, targets, strict=True):
        sides[id_] = max(split, sides.get(id_, split), key=SPLITS.index)
    splits = [sides[id_] for id_, _ in records]
    return splits, sum(before != after for before, after in zip(targets, splits, strict=True))


def keep_in_training(
    records: Sequence[tuple[str, Split | None]], labels: Sequence[str | None], splits: Sequence[Split]
) -> tuple[list[Split], list[str]]:
    """Move one record into training for each label that has none there by chance.

    It is the record with the largest SHA-256, which is the first in training as shares get smaller, with all records
    of the same content. Records of the source's validation or test split stay there. If a later record of the label
    belongs into training, the one that was moved goes back.

    Args:
        records: as in assign().
        labels: the records' labels.
        splits: the result of assign().

    Returns:
        Each record's split, and the labels that had no record in training.
    """
    trained = {label for label, split in zip(labels, splits, strict=True) if split == "train"}
    fixed = {id_ for id_, source_split in records if source_split not in (None, "train")}
    chosen = dict[str, str]()
    for (id_, _), label in zip(records, labels, strict=True):
        if label is not None and label not in trained and id_ not in fixed:
            chosen[label] = max(id_, chosen.get(label, id_))
    moved = set(chosen.values())
    changed: list[Split] = ["train" if id_ in moved else split for (id_, _), split in zip(records, splits, strict=True)]
    return changed, sorted(chosen)


def _by_hash(id_: str, validation: float, test: float) -> Split:
    """The split by the first 64 bits of a SHA-256 as a fraction: test, then validation, then training."""
    share = int(id_[:16], 16) / 2**64
    if share < test:
        return "test"
    return "validation" if share < test + validation else "train"
