"""What a data set's card says of it: the front matter of a README.md beside the data, as the hub's data sets have it.

https://huggingface.co/docs/hub/datasets-cards. Whoever made the data wrote it, so it is short plain text or nothing.
"""

from collections.abc import Mapping
from pathlib import Path

import yaml

from understudy.errors import printable

NAME = "README.md"
LARGEST = 64 * 2**10
"""Bytes that are read."""
LONGEST = 200
"""Letters of a value."""
ENTRIES = {
    "pretty_name": "name",
    "license": "licence",
    "license_name": "licence's name",
    "license_link": "licence's text",
    "source_datasets": "made from",
}
"""What is read, and what it is called here."""
NOTHING = ("", "~", "null", "Null", "NULL")
"""How YAML writes that there is none."""

BUILT_IN: dict[str, dict[str, str]] = {
    "digits": {
        "name": "Optical Recognition of Handwritten Digits (E. Alpaydin and C. Kaynak, UCI), as scikit-learn has it",
        "licence": "CC BY 4.0",
    },
    "python-docs": {"name": "pydoc's topics and the docstrings of Python's standard library", "licence": "PSF-2.0"},
}
"""Of data that comes along, by its source's type."""


def card(path: str | None) -> dict[str, str]:
    """What the card of the data at a path says; nothing where there is none, or none that can be read.

    Args:
        path: a file or a folder; the card lies in the folder or in the one above.
    """
    for folder in _folders(path):
        if (folder / NAME).is_file():
            return _entries(_front_matter(folder / NAME))
    return {}


def _folders(path: str | None) -> list[Path]:
    if path is None:
        return []
    here = Path(path).expanduser()
    folder = here if here.is_dir() else here.parent
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
    # Texts, lists and mappings alone: a tag such as !!bool raises anything on a value that is none, and merge keys (<<)
    # make gigabytes of one kilobyte.
    try:
        found = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    if not isinstance(found, Mapping):
        return {}
    words = {called: _words(found.get(name)) for name, called in ENTRIES.items()}
    return {called: said for called, said in words.items() if said}


def _words(value: object) -> str:
    """A text, or a list of texts, on one line."""
    listed = value if isinstance(value, list) else [value]
    said = ", ".join(entry for entry in listed[:9] if isinstance(entry, str) and entry not in NOTHING)
    return printable(said)[:LONGEST]
