"""The files of a source below a path, the splits of their folders, and their digest."""

import os
from dataclasses import dataclass
from pathlib import Path

from understudy.data.raw import Broken, Raw, Split
from understudy.data.sources import splits
from understudy.data.sources.tree import Tree
from understudy.errors import InputError
from understudy.store.files import Fingerprints, canonical, sha256


@dataclass(frozen=True)
class FileSelection:
    """The files that a source reads."""

    path: str
    """The recipe's data.source.path."""
    pattern: str
    """A glob for names below it."""
    words: str
    """Their name in messages."""
    suffixes: frozenset[str] | None = None
    """Endings of names, in lower case, such as .png or .jsonl.gz; None takes every file of the pattern."""
    may_be_one: bool = False
    """Whether the path may be a single file."""
    follow_links: bool = False
    """Whether links may lead out of the path."""


def find(selection: FileSelection) -> tuple[Path, list[Path]]:
    """The folder that names are relative to, and the files that the source reads, sorted, without hidden ones.

    Raises:
        InputError: there are none, a name is not UTF-8, or a link leads out of the folder.
    """
    root = Path(selection.path).expanduser()
    if not root.exists():
        raise InputError(
            f"data.source.path: {selection.path} does not exist. Give a path that does; a relative one starts at the "
            "recipe's folder, one of --set at the folder that the command runs in."
        )
    if root.is_file() and selection.may_be_one:
        return root.parent, [root]
    if not root.is_dir():
        raise InputError(f"data.source.path: {selection.path} is not a folder. Give the folder that holds the files.")
    paths = _matching(root, selection)
    for path in paths:
        check_name(path)
    if selection.suffixes is not None:
        paths = [path for path in paths if path.name.lower().endswith(tuple(selection.suffixes))]
    if not paths:
        raise InputError(
            f"data.source.path: {selection.path} holds no {selection.words}{_instead(root)}. "
            "Put some there or give another path."
        )
    return root, paths


def digest(selection: FileSelection, fingerprints: Fingerprints) -> str:
    """One SHA-256 over names and contents of the files.

    Raises:
        InputError: as in find().
    """
    # Only the files read: a single file may have any neighbours, such as a store with changing Parquet files.
    root, paths = find(selection)
    return sha256(canonical([[path.relative_to(root).as_posix(), _content(path, fingerprints)] for path in paths]))


def _content(path: Path, fingerprints: Fingerprints) -> str:
    """A file's SHA-256, or why it has none: ingest then reports it or leaves it out, depending on data.on_error."""
    try:
        return fingerprints.file(path)
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def own_splits(root: Path) -> dict[str, Split]:
    """The sub-folders that are splits: two or more of train/, test/ and validation/, under any of their names.

    Raises:
        InputError: there is no train/ among them, or two are names of one split.
    """
    return splits.of_folders(f"data.source.path: {root}", [path.name for path in root.iterdir() if path.is_dir()])


def check_name(path: Path) -> None:
    """Reject a name that no recipe and no record can contain."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"data.source.path: {str(path)!a}: the name is not UTF-8. Rename it.") from error


def read_file(root: Path, path: Path, label: str | None, split: Split | None) -> Raw | Broken:
    """A whole file as one record, named by its path below the root."""
    name = path.relative_to(root).as_posix()
    try:
        return Raw(name, path.read_bytes(), label, split)
    except OSError as error:
        return Broken(name, f"cannot be read ({error.strerror})")


def _matching(root: Path, selection: FileSelection) -> list[Path]:
    pattern = Path(selection.pattern)
    if not pattern.parts or pattern.is_absolute() or ".." in pattern.parts:
        raise InputError(
            f"data.source.glob: {selection.pattern!r} does not name files below data.source.path. "
            "Give a pattern below path, such as **/*.txt."
        )
    return Tree(root, pattern.parts, selection.follow_links).files()


def _instead(root: Path) -> str:
    """The other contents of a folder, without hidden files, for a message."""
    names = sorted(os.fsencode(path.name).decode(errors="backslashreplace") for path in root.glob("[!.]*"))
    if not names:
        return ", nor anything else that is not hidden"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f", only {', '.join(names[:3])}{more}"
