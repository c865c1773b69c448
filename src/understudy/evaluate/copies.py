"""A caution about copies in the test split: the gate's intervals take the test examples to be independent."""

from collections.abc import Mapping
from typing import Any

from understudy.recipe.tasks import RecipeTask

LEAST = 0.95
"""The share of the test examples that have to differ, or else there is a caution. If 5 % are copies, each of another
example, the variance is 1.1 times the one computed: an interval is too narrow by a twentieth."""


def on_copies(records: Mapping[str, Any], task: RecipeTask) -> str:
    """A sentence with the numbers; empty if nearly all test examples differ.

    Args:
        records: the content of records.json, which has no `distinct` if no record is a copy.
        task: the recipe's.
    """
    count, distinct = (records.get(name, records["counts"])["test"] for name in ("counts", "distinct"))
    if distinct >= LEAST * count:
        return ""
    return (
        f"Of {count:,} test {task.NOUN}s {distinct:,} differ. Copies are not independent, so all intervals here are "
        "too narrow, and rules may pass by them: remove the copies from the data, or give test data that has none."
    )
