"""Counts of copies among the records: records of one split with the same key, which are one example many times."""

from collections.abc import Iterator, Mapping, Sequence

from understudy.data.raw import SPLITS, Split


def distinct_counts(keys: Sequence[str], splits: Sequence[Split]) -> dict[Split, int]:
    """The number of distinct records by split; empty if no record is a copy of another.

    Args:
        keys: the records' keys (`Checked.key`), which decide their splits: copies are in one split.
        splits: the records' splits.
    """
    distinct = dict(zip(keys, splits, strict=True))
    if len(distinct) == len(keys):
        return {}
    in_order = list(distinct.values())
    return {split: in_order.count(split) for split in SPLITS}


def on_copies(noun: str, counts: Mapping[Split, int], distinct: Mapping[Split, int]) -> Iterator[str]:
    """A note for each split that has copies."""
    for split, count in distinct.items():
        if copies := counts[split] - count:
            yield f"of {counts[split]:,} {noun}s of the {split} split {count:,} differ; {copies:,} are copies of others"
