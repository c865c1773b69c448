"""The files of a source below a folder, including links that stay inside it.

Data may come from a third party, in an archive or on a shared volume. A link that leads out of its folder could bring
any file that this process may read into the records, such as a key or another team's data, and from there into a
model that others get. So such links are followed only if the recipe allows it. A link's target is checked when the
folder is listed; a user with write access can change it later.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from understudy.errors import InputError


@dataclass(frozen=True)
class Tree:
    """A folder, and a pattern for its files."""

    root: Path
    pattern: tuple[str, ...]
    """A glob, split at its slashes; ** stands for any number of folders."""
    follow_links: bool
    """Whether links may lead out of the folder."""

    def files(self) -> list[Path]:
        """The files, sorted, without hidden ones.

        Raises:
            InputError: a link leads out of the folder, around in a circle or nowhere, or a folder cannot be read.
        """
        return sorted(self._below(self.root, ()))

    def _below(self, folder: Path, above: tuple[str, ...]) -> Iterator[Path]:
        """The files below a folder that was reached through the folders `above`, given by their real paths."""
        real = os.path.realpath(folder)
        if real in above:
            raise InputError(f"data.source.path: {folder} is a link to a folder that it lies in. Remove it.")
        for entry in _entries(folder):
            path = Path(entry.path)
            if entry.name.startswith("."):
                continue
            if os.path.isdir(path):
                if entry.is_symlink():
                    self._check(path)
                yield from self._below(path, (*above, real))
            elif _matches(path.relative_to(self.root).parts, self.pattern):
                if entry.is_symlink():
                    self._check(path)
                if path.is_file():
                    yield path

    def _check(self, link: Path) -> None:
        target = Path(os.path.realpath(link))
        if not target.exists():
            raise InputError(f"data.source.path: {link} is a link to {target}, which does not exist. Remove the link.")
        if not self.follow_links and not target.is_relative_to(os.path.realpath(self.root)):
            raise InputError(
                f"data.source.path: {link} is a link that leads out of the folder, to {target}. Put a copy there, "
                "or say data.source.follow_links: true if you trust whoever made the link."
            )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(
            f"data.source.path: {folder} cannot be read ({error.strerror}). Give whoever runs this the right to."
        ) from error


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[skipped:], pattern[1:]) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
