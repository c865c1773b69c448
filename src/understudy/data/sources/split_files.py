"""The split of a file by its path: by the naming of the hub and the datasets library, or by common words."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import NamedTuple

from understudy.data.raw import Split
from understudy.data.sources.splits import SPLIT_NAMES, split_named, splits_in
from understudy.errors import InputError

FILE = re.compile(r"(?P<word>[a-z]+)(-(?P<shard>\d+)-of-(?P<shards>\d+)(-[0-9a-f]+)?)?")
"""A split's file on the hub: train, train-00000-of-00002, and with a hash, as datasets wrote it before 2.14."""
SHOWN = 3


class Named(NamedTuple):
    """A split that a file's path names."""

    split: Split
    parent: PurePath
    """The folder of the name."""
    name: str
    """A folder, a file, or all shards of one."""
    shard: int | None = None


def of_files(place: str, files: Sequence[str]) -> tuple[dict[str, Split], list[str]]:
    """The splits of files by their paths, and notes on them.

    A name that is a split's, of a file or of a folder, decides. Without one, a word in the path decides, unless it is
    in the path of every file. Files without a split are not in the result.

    Args:
        place: the beginning of messages.
        files: paths from the source's folder.

    Raises:
        InputError: a path names two splits, or a split is named twice.
    """
    named = {file: found for file in files if (found := _named(place, PurePath(file)))}
    _check_once(place, named.values())
    splits = {file: found.split for file, found in named.items()}
    words = {file: _words(PurePath(file)) for file in files if file not in named}
    likely = {file: found[0] for file, found in words.items() if len(found) == 1}
    unclear = [file for file, found in words.items() if len(found) > 1]
    notes = [f"{file} names more than one split, and is read as none" for file in unclear]
    if len({splits.get(file) or likely.get(file) for file in files}) > 1:
        notes += [f"{file} is read as {split}, since its path says so" for file, split in likely.items()]
        return splits | likely, _some(notes)
    alike = [(file, split) for file, split in likely.items() if split != "train"]
    notes += [f"{file} looks like {split}, and is read as any other file" for file, split in alike]
    return splits, _some(notes)


def _words(path: PurePath) -> list[Split]:
    return sorted(frozenset[Split]().union(*map(splits_in, path.with_suffix("").parts)))


def _some(notes: Sequence[str]) -> list[str]:
    more = len(notes) - SHOWN
    return [*notes[:SHOWN], f"and so with {more} more"] if more > 0 else list(notes)


def _named(place: str, path: PurePath) -> Named | None:
    """The split that the path names in full."""
    found = dict[Split, Named]()
    for folder in reversed(path.parents[:-1]):
        if split := split_named(folder.name):
            found[split] = Named(split, folder.parent, f"{folder.name}/")
    match = FILE.fullmatch(path.stem.lower())
    if match and (split := SPLIT_NAMES.get(match["word"])):
        shards = match["shards"]
        name = f"{match['word']}-*-of-{shards}{path.suffix}" if shards else path.name
        found[split] = Named(split, path.parent, name, int(match["shard"]) if shards else None)
    if len(found) > 1:
        raise InputError(f"{place}: {path} names two splits, {' and '.join(found)}. Rename its folder, or the file.")
    return next(iter(found.values()), None)


def _check_once(place: str, found: Iterable[Named]) -> None:
    """Reject two names of one split in the same folder: the same data may be in both."""
    seen = dict[tuple[Split, PurePath], str]()
    shards = set[Named]()
    for named in found:
        first = seen.setdefault((named.split, named.parent), named.name)
        if first != named.name:
            raise InputError(
                f"{place}: {named.parent / first} and {named.parent / named.name} both name the {named.split} split. "
                "Keep one, or put them into one folder."
            )
        if named.shard is not None and named in shards:
            raise InputError(
                f"{place}: {named.parent / named.name} has shard {named.shard} twice. Remove the file that is too much."
            )
        shards.add(named)
