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
COMPRESSED = (".gz", ".zst")
SHOWN = 3


class Named(NamedTuple):
    """A split that a file's path names."""

    split: Split
    parent: PurePath
    """The folder of the name."""
    name: str
    """A folder, a file, or all shards of one."""
    shard: int | None = None


def of_files(location: str, files: Sequence[str]) -> tuple[dict[str, Split], list[str]]:
    """The splits of files by their paths, and notes on them.

    A name that is a split's, of a file or of a folder, decides. Without one, a word in the path decides, unless it is
    in the path of every file. Files without a split are not in the result.

    Args:
        location: the beginning of messages.
        files: paths from the source's folder.

    Raises:
        InputError: a path names two splits, or a split is named twice.
    """
    named_splits = {file: match for file in files if (match := _named_split(location, PurePath(file)))}
    _check_once(location, named_splits.values())
    splits = {file: match.split for file, match in named_splits.items()}
    word_splits = {file: _words(PurePath(file)) for file in files if file not in named_splits}
    likely = {file: candidates[0] for file, candidates in word_splits.items() if len(candidates) == 1}
    unclear = [file for file, candidates in word_splits.items() if len(candidates) > 1]
    notes = [f"{file} names more than one split, and is read as none" for file in unclear]
    if len({splits.get(file) or likely.get(file) for file in files}) > 1:
        notes += [f"{file} is read as {split}, since its path says so" for file, split in likely.items()]
        return splits | likely, _first_notes(notes)
    ambiguous = [(file, split) for file, split in likely.items() if split != "train"]
    notes += [f"{file} looks like {split}, and is read as any other file" for file, split in ambiguous]
    return splits, _first_notes(notes)


def _words(path: PurePath) -> list[Split]:
    return sorted(frozenset[Split]().union(*map(splits_in, path.with_suffix("").parts)))


def _first_notes(notes: Sequence[str]) -> list[str]:
    more = len(notes) - SHOWN
    return [*notes[:SHOWN], f"and so with {more} more"] if more > 0 else list(notes)


def _named_split(location: str, path: PurePath) -> Named | None:
    """The split that the path names in full."""
    by_split = dict[Split, Named]()
    for folder in reversed(path.parents[:-1]):
        if split := split_named(folder.name):
            by_split[split] = Named(split, folder.parent, f"{folder.name}/")
    stem = path.with_suffix("").stem if path.suffix.lower() in COMPRESSED else path.stem
    match = FILE.fullmatch(stem.lower())
    if match and (split := SPLIT_NAMES.get(match["word"])):
        shards = match["shards"]
        name = f"{match['word']}-*-of-{shards}{path.name.removeprefix(stem)}" if shards else path.name
        by_split[split] = Named(split, path.parent, name, int(match["shard"]) if shards else None)
    if len(by_split) > 1:
        raise InputError(
            f"{location}: {path} names two splits, {' and '.join(by_split)}. Rename its folder, or the file."
        )
    return next(iter(by_split.values()), None)


def _check_once(location: str, named_splits: Iterable[Named]) -> None:
    """Reject two names of one split in the same folder: the same data may be in both."""
    first_names = dict[tuple[Split, PurePath], str]()
    shards = set[Named]()
    for named in named_splits:
        first = first_names.setdefault((named.split, named.parent), named.name)
        if first != named.name:
            raise InputError(
                f"{location}: {named.parent / first} and {named.parent / named.name} both name the {named.split} "
                "split. Keep one, or put them into one folder."
            )
        if named.shard is not None and named in shards:
            raise InputError(f"{location}: {named.parent / named.name} has shard {named.shard} twice. Remove one file.")
        shards.add(named)
