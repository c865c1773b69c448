"""The labels of records: one spelling of each, a note on confusables, and a check that records share them."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable

from understudy.errors import InputError
from understudy.recipe.sources import SourceSection

SHOWN = 3
FEW = 20
"""Records of which each may have a label of its own."""


def canonical(label: str) -> str:
    """A label in Unicode's form NFC (UAX #15): macOS returns folder names in NFD, which look the same."""
    return unicodedata.normalize("NFC", label)


def lookalikes(labels: Iterable[str]) -> list[str]:
    """A note on confusables: labels that differ only in case, spaces, dashes or compatibility forms (Cat and cat)."""
    groups = defaultdict[str, list[str]](list)
    for label in sorted(labels):
        folded = unicodedata.normalize("NFKC", label).casefold()
        groups["".join(folded.replace("_", " ").replace("-", " ").split())].append(label)
    confused = [", ".join(group) for group in groups.values() if len(group) > 1]
    if not confused:
        return []
    more = f"; and {len(confused) - SHOWN} more such" if len(confused) > SHOWN else ""
    return [f"labels that may be meant to be one: {'; '.join(confused[:SHOWN])}{more}"]


def check_shared(location: str, source: SourceSection, labels: int, records: int) -> None:
    """Reject labels that nearly no two records share: they are another column's, such as the texts.

    Args:
        location: the place of the source in the recipe.
        source: the recipe's section.
        labels: the number of labels.
        records: the number of records.

    Raises:
        InputError: there are more labels than half of the records.
    """
    if records <= FEW or 2 * labels <= records:
        return
    columns = getattr(source, "columns", None)
    question = "are its folders named after labels"
    if columns is not None:
        question = f"is {columns.get('label', getattr(source, 'label', 'label'))} the column of labels"
    raise InputError(f"{location}: {labels:,} labels for {records:,} records: {question}?")
