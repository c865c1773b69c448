"""The splits of a data set that has its own, by the names in the recipe or by common words."""

from collections.abc import Mapping, Sequence

from understudy.data.raw import SPLITS, Split
from understudy.data.sources.splits import check_once, split_named
from understudy.errors import InputError


def chosen(path: str, names: Sequence[str], named: Mapping[Split, str]) -> tuple[dict[Split, str], list[str]]:
    """The name of each split, and notes on those that are not read.

    A split that the recipe does not name is the one whose name is a word for it.

    Args:
        path: the recipe's data.source.path.
        names: the splits of the data set.
        named: those that the recipe names.

    Raises:
        InputError: the recipe names a split that is not there, or one twice; or none is for training.
    """
    has = f"It has {', '.join(names)}: name one of them."
    for split, name in named.items():
        if name not in names:
            raise InputError(f"data.source.{split}: {path} has no split {name}. {has}")
        first = next(other for other in named if named[other] == name)
        if first != split:
            raise InputError(f"data.source.{split}: {name} is the {first} split, too. Name another one.")
    by_word = {name: word for name in names if (word := split_named(name))}
    remaining = {name: split for name, split in by_word.items() if split not in named and name not in named.values()}
    check_once(f"data.source.path: {path}", remaining)
    by_split = {**named, **{split: name for name, split in remaining.items()}}
    if "train" not in by_split:
        raise InputError(f"data.source.train: {path} has no split train. {has}")
    unused = [name for name in names if name not in by_split.values()]
    notes = [f"not read, since no key of data.source names them: the splits {', '.join(unused)}"] if unused else []
    return {split: by_split[split] for split in SPLITS if split in by_split}, notes
