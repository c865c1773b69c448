"""The splits of folders and files by their names, with the words of the datasets library.

A name that is exactly such a word is that split. A name that contains such a word (train_set, mnist-test) is a
separate case: sources use it, reject it or note it, but never read test data as training data without a message.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from understudy.data.raw import SPLITS, Split
from understudy.errors import InputError

SPLIT_NAMES: dict[str, Split] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}
ENDINGS = ("s", "set", "sets", "split", "data")  # trainset, testdata
SHOWN = 3


def split_named(name: str) -> Split | None:
    """The split with this name, in any case of letters, also in Hive's form split=train; None if there is none."""
    return SPLIT_NAMES.get(name.lower().removeprefix("split="))


def splits_in(name: str) -> frozenset[Split]:
    """The splits whose names are words of this name.

    A word ends at any character that is not a letter, and at a capital after a small letter. Hive's other partitions,
    such as status=valid, name none.
    """
    if "=" in name and not name.lower().startswith("split="):
        return frozenset()
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    return frozenset(split for word in words if (split := _split_of_word(word)))


def _split_of_word(word: str) -> Split | None:
    if word == "trainval":  # Pascal VOC
        return "train"
    stems = [word, *(word.removesuffix(ending) for ending in ENDINGS)]
    return next((SPLIT_NAMES[stem] for stem in stems if stem in SPLIT_NAMES), None)


def of_folders(location: str, names: Iterable[str]) -> dict[str, Split]:
    """The folders that are splits, if there are two splits or more; otherwise none.

    Args:
        location: the beginning of messages.
        names: the names of folders side by side.

    Raises:
        InputError: there is no training split, or two are names of one split.
    """
    by_name = {name: split for name in sorted(names) if (split := split_named(name))}
    present = dict(sorted(by_name.items(), key=lambda item: SPLITS.index(item[1])))
    check_once(location, present)
    if len(set(present.values())) < 2:
        return {}
    check_trainable(location, present)
    return present


def check_once(location: str, names: Mapping[str, Split]) -> None:
    """Reject two names of one split, which may have the same data twice."""
    for split in SPLITS:
        twice = [name for name, named in names.items() if named == split]
        if len(twice) > 1:
            raise InputError(f"{location}: {' and '.join(twice)} both name the {split} split. Keep one, or merge them.")


def check_trainable(location: str, names: Mapping[str, Split]) -> None:
    """Reject splits without one to train on."""
    if "train" not in names.values():
        folders = " and ".join(f"{name}/" for name in names)
        raise InputError(
            f"{location} has {folders}, and no train/ to train on. Put it there, or move their content "
            "one folder up to have it split by data.test."
        )


def sizes(records: Iterable[tuple[Split | None, int]]) -> dict[Split, int]:
    """Number of records of each split that has any, from numbers of records with their split."""
    counts = Counter[Split]()
    for split, count in records:
        if split and count:
            counts[split] += count
    return dict(counts)


def unused(location: str, paths: Sequence[PurePath], used: Iterable[str], *, labelled: bool) -> list[str]:
    """Notes on folders and files that look like splits and are not read as such.

    Args:
        location: the beginning of messages.
        paths: the paths of all files, from the source's folder.
        used: the first folders that are read as splits.
        labelled: whether folders are labels; otherwise each file is a document.

    Raises:
        InputError: they are almost certainly splits, and test data would be trained on.
    """
    folders = defaultdict[PurePath, set[str]](set)
    documents = defaultdict[PurePath, set[str]](set)
    files = Counter(path.parent for path in paths)
    for path in paths if not labelled else ():
        if split_named(path.stem):
            documents[path.parent].add(path.name)
    parents = {path.parent for path in paths}
    for folder in {above for parent in parents for above in (parent, *parent.parents)} - {PurePath()}:
        folders[folder.parent].add(folder.name)
    folders[PurePath()].difference_update(used)
    looks = list[str]()
    for parent in sorted({*folders, *documents}):
        alike = [name for name in sorted(folders[parent]) if splits_in(name)]
        if len(alike) == len(folders[parent]):
            _check_not_mixed(location, parent, {f"{name}/": splits_in(name) for name in alike})
        elif labelled:
            _check_not_mixed(location, parent, {f"{name}/": splits_in(name) for name in alike if split_named(name)})
        if 2 * len(documents[parent]) >= files[parent]:  # among many others they are words, as training.py in a program
            _check_not_mixed(
                location, parent, {name: splits_in(PurePath(name).stem) for name in sorted(documents[parent])}
            )
        looks += [f"{parent / name}/" for name in alike]
        looks += [str(parent / name) for name in sorted(documents[parent])]
    return [_note(looks, "label" if labelled else "document")] if looks else []


def _check_not_mixed(location: str, parent: PurePath, names: Mapping[str, frozenset[Split]]) -> None:
    """Reject names side by side that seem to be a training split and another split."""
    apparent = frozenset[Split]().union(*(splits for splits in names.values() if len(splits) == 1))
    if "train" in apparent and len(apparent) > 1:
        shown = " and ".join(f"{parent}/{name}".removeprefix("./") for name in list(names)[:SHOWN])
        raise InputError(
            f"{location}: {shown} look like splits and cannot be read as such, so test data would be used for "
            "training. Make them train/ and test/ right below data.source.path, or give them other names."
        )


def _note(names: Sequence[str], kind: str) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"called like a split, and read as any other {kind}: {', '.join(names[:SHOWN])}{more}"
