"""A survey of a folder, for a first recipe: images by label or text documents, their number and size.

Nothing is decoded: names, lengths and the headers of some images are enough.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from understudy.data.labels import canonical
from understudy.data.raw import Split
from understudy.data.sources import image_folder
from understudy.data.sources.files import check_name, own_splits
from understudy.data.sources.image_folder import SUFFIXES
from understudy.data.sources.tree import Tree
from understudy.errors import InputError

TEXTS = (".txt", ".md", ".rst", ".tex", ".html")
GREY = ("1", "L", "LA", "I;16")  # Pillow's modes
LOOKED_AT = 200  # of more images, the headers of 200 to 399 are read


@dataclass(frozen=True)
class Images:
    """Images in folders named after their labels."""

    kind: ClassVar[str] = "images"
    labels: tuple[str, ...]
    train: int
    """All images, if the folder has no test split."""
    test: int | None
    """None if the folder has no test split."""
    side: int
    """The median of the shorter sides, in pixels."""
    channels: int
    unread: str
    """Other contents of the folder, such as 12 x .heic."""
    is_deep: bool
    """Whether images are in folders below their label's."""


@dataclass(frozen=True)
class Documents:
    """Text files."""

    kind: ClassVar[str] = "documents"
    suffix: str
    train: int
    """All files, if the folder has no test split."""
    test: int | None
    """None if the folder has no test split."""
    length: int
    """Total bytes."""
    unread: str
    """Other contents of the folder, such as 3 x .pdf."""


def survey(folder: Path) -> Images | Documents:
    """The images or the texts of a folder, whichever are more; hidden files do not count.

    Raises:
        InputError: there is no such folder, nothing in it that a source reads, no folder for each label, no image in
            one of them, a name that is not UTF-8, or a link that leads out of the folder.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder}: is not a folder; give one with images in a folder for each label, or with text files"
        )
    check_name(folder.resolve())
    names = [path.relative_to(folder) for path in Tree(folder, ("**", "*"), follow_links=False).files()]
    images = [name for name in names if name.suffix.lower() in SUFFIXES]
    texts = [name for name in names if name.suffix in TEXTS]
    for name in (*images, *texts):
        check_name(name)
    if not images and not texts:
        contents = f"it has {_kinds(names)}" if names else "it is empty"
        suffixes = " ".join((*sorted(SUFFIXES), *TEXTS))
        raise InputError(
            f"{folder}: contains no images and no texts ({suffixes}); {contents}. "
            "Images may also be in Parquet, and texts in Parquet, CSV or JSON (docs/using/recipes.md). "
            "understudy init --example digits writes a recipe that needs none"
        )
    if len(images) >= len(texts):
        return _images(folder, images, _unread_kinds(names, images))
    suffix = Counter(name.suffix for name in texts).most_common(1)[0][0]
    documents = [name for name in texts if name.suffix == suffix]
    return _documents(folder, documents, _unread_kinds(names, documents))


def _unread_kinds(shown: Iterable[Path], names: Sequence[Path]) -> str:
    """The kinds of files that are not read."""
    return _kinds(set(shown).difference(names))


def _kinds(names: Iterable[Path]) -> str:
    """The most frequent suffixes."""
    kinds = Counter(name.suffix or "no suffix" for name in names).most_common(3)
    return ", ".join(f"{count:,} x {kind}" for kind, count in kinds)


def _images(folder: Path, names: Sequence[Path], unread: str) -> Images:
    splits = image_folder.own_splits(folder, [folder / name for name in names])
    labelled = [(name, *_label_and_split(name, splits)) for name in names]
    loose = [name for name, label, _ in labelled if label is None]
    if loose:
        layout = "<label>/" if not splits else " or ".join(f"{split}/<label>/" for split in splits)
        raise InputError(f"{folder}: {loose[0]} lies in no label's folder; put every image into {layout}")
    names_of_labels = {str(label) for _, label, _ in labelled}
    image_folder.check_labels(folder, splits, names_of_labels, str(folder))
    labels = tuple(sorted(set(map(canonical, names_of_labels))))
    sides, modes = _headers([folder / name for name in names])
    train, test = _counts([split for _, _, split in labelled])
    return Images(
        labels,
        train,
        test,
        side=int(statistics.median(sides)),
        channels=1 if modes <= set(GREY) else 3,
        unread=unread,
        is_deep=any(len(name.parts) > (3 if splits else 2) for name in names),
    )


def _documents(folder: Path, names: Sequence[Path], unread: str) -> Documents:
    splits = own_splits(folder)
    train, test = _counts([splits.get(name.parts[0]) for name in names])
    length = sum((folder / name).stat().st_size for name in names)
    return Documents(names[0].suffix, train, test, length, unread)


def _label_and_split(name: Path, splits: dict[str, Split]) -> tuple[str | None, Split | None]:
    """An image's label and split, as its source sees them."""
    folders = name.parts[:-1]
    if not splits:
        return (folders[0] if folders else None), None
    return (folders[1], splits[folders[0]]) if len(folders) > 1 and folders[0] in splits else (None, None)


def _counts(splits: Sequence[Split | None]) -> tuple[int, int | None]:
    """The number of training examples and, if there are any, of test examples."""
    test = splits.count("test")
    return len(splits) - test - splits.count("validation"), test or None


def _headers(paths: Sequence[Path]) -> tuple[list[int], set[str]]:
    """The shorter sides of some images, spread evenly over all, and their modes.

    Raises:
        InputError: none of them is an image.
    """
    from PIL import Image

    from understudy.data.images import DAMAGE, FORMATS

    sides, modes = list[int](), set[str]()
    for path in paths[:: max(1, len(paths) // LOOKED_AT)]:
        try:
            with Image.open(path, formats=FORMATS) as image:
                sides.append(min(image.size))
                modes.add(image.mode)
        except DAMAGE:
            continue  # the run reports or skips it, by data.on_error
    if not sides:
        raise InputError(f"{paths[0]}: cannot be opened as an image, nor can others; are they damaged?")
    return sides, modes
