"""Which split a record belongs to, by its content alone.

So the split is the same on every machine, equal content lies on one side, and records that come later move no other,
but for one that was put into training for its label's sake.
What the source itself calls test or validation stays that.
"""

from collections.abc import Sequence

from understudy.data.raw import SPLITS, Split


def assign(records: Sequence[tuple[str, Split | None]], validation: float, test: float) -> tuple[list[Split], int]:
    """Split records by content.

    Args:
        records: each one's SHA-256, and the split that the source itself put it into.
        validation: share of what the source does not call test, unless it has its own validation split.
        test: share of all, unless the source has its own test split.

    Returns:
        Each record's split, and how many left the one they would have had because equal content lies in another.
    """
    own = {split for _, split in records}
    test = 0 if "test" in own else test
    validation = 0 if "validation" in own else validation
    wanted = [_by_hash(id_, validation, test) if split in (None, "train") else split for id_, split in records]
    sides: dict[str, Split] = {}
    for (id_, _), split in zip(records, wanted, strict=True):
        sides[id_] = max(split, sides.get(id_, split), key=SPLITS.index)
    splits = [sides[id_] for id_, _ in records]
    return splits, sum(before != after for before, after in zip(wanted, splits, strict=True))


def keep_in_training(
    records: Sequence[tuple[str, Split | None]], labels: Sequence[str | None], splits: Sequence[Split]
) -> tuple[list[Split], list[str]]:
    """Put one record of each label into training that chance has put elsewhere altogether.

    It is the one with the largest SHA-256, which is the first in training as shares get smaller, with all that have its
    content. What the source itself calls test or validation stays there. Should a record of the label come later that
    belongs into training, the one that was put there goes back.

    Args:
        records: as of assign().
        labels: each one's.
        splits: what assign() gives.

    Returns:
        Each record's split, and the labels that would have had none in training.
    """
    trained = {label for label, split in zip(labels, splits, strict=True) if split == "train"}
    fixed = {id_ for id_, own in records if own not in (None, "train")}
    chosen = dict[str, str]()
    for (id_, _), label in zip(records, labels, strict=True):
        if label is not None and label not in trained and id_ not in fixed:
            chosen[label] = max(id_, chosen.get(label, id_))
    moved = set(chosen.values())
    changed: list[Split] = ["train" if id_ in moved else split for (id_, _), split in zip(records, splits, strict=True)]
    return changed, sorted(chosen)


def _by_hash(id_: str, validation: float, test: float) -> Split:
    """The first 64 bits of a SHA-256 as a share of one: below `test` it is test, the next `validation` validation."""
    share = int(id_[:16], 16) / 2**64
    if share < test:
        return "test"
    return "validation" if share < test + validation else "train"
