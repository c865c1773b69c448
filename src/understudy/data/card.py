"""Cards of data sets: the front matter of a README.md beside the data, as on the Hugging Face hub.

https://huggingface.co/docs/hub/datasets-cards. A card is untrusted, so its entries are short plain text or left out.
"""

from collections.abc import Mapping
from pathlib import Path

import yaml

from understudy.errors import printable

NAME = "README.md"
LARGEST = 64 * 2**10
"""Maximum number of bytes read."""
LONGEST = 200
"""Maximum characters of a value."""
ENTRIES = {
    "pretty_name": "name",
    "license": "licence",
    "license_name": "licence's name",
    "license_link": "licence's text",
    "source_datasets": "made from",
}
"""The keys that are read, and their titles here."""
NOTHING = ("", "~", "null", "Null", "NULL")
"""YAML's null values."""

BUILT_IN: dict[str, dict[str, str]] = {
    "digits": {
        "name": "Optical Recognition of Handwritten Digits (E. Alpaydin and C. Kaynak, UCI), as scikit-learn has it",
        "licence": "CC BY 4.0",
    },
    "python-docs": {"name": "pydoc's topics and the docstrings of Python's standard library", "licence": "PSF-2.0"},
}
"""Cards of built-in data, by the source's type."""


def card(path: str | None) -> dict[str, str]:
    """The entries of the card of the data at a path; empty without a readable card.

    Args:
        path: a file or a folder; the card is in the folder or in its parent.
    """
    for folder in _folders(path):
        if (folder / NAME).is_file():
            return _entries(_front_matter(folder / NAME))
    return {}


def _folders(path: str | None) -> list[Path]:
    if path is None:
        return []
    location = Path(path).expanduser()
    folder = location if location.is_dir() else location.parent
    return [folder, folder.parent]


def _front_matter(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---" or "---" not in (line.strip() for line in lines[1:]):
        return ""
    end = next(number for number, line in enumerate(lines[1:], 1) if line.strip() == "---")
    return "\n".join(lines[1:end])


def _entries(text: str) -> dict[str, str]:
    # BaseLoader returns only texts, lists and mappings: a tag such as !!bool raises any error on other values, and
    # merge keys (<<) expand one kilobyte to gigabytes.
    try:
        fields = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    if not isinstance(fields, Mapping):
        return {}
    words = {title: _words(fields.get(name)) for name, title in ENTRIES.items()}
    return {title: text for title, text in words.items() if text}


def _words(value: object) -> str:
    """A text, or a list of texts, on one line."""
    items = value if isinstance(value, list) else [value]
    text = ", ".join(entry for entry in items[:9] if isinstance(entry, str) and entry not in NOTHING)
    return printable(text)[:LONGEST]
