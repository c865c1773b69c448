"""The labels of records: one spelling of each, and a note on confusables."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable

SHOWN = 3


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
