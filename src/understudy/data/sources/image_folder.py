"""A folder of images, labelled by its sub-folders."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from understudy.data.labels import canonical
from understudy.data.raw import Broken, Raw, Reading, Split
from understudy.data.sources import files
from understudy.data.sources.source import DataSource
from understudy.data.sources.splits import check_trainable, sizes, split_named, unused
from understudy.errors import InputError
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})

LabelAndSplit = tuple[str, Split | None]
"""An image's label, and the split of its folder."""


class ImageFolderSource(SourceSection):
    """A folder of images, one sub-folder per label, or train/ and test/ (and validation/) above those."""

    type: Literal["image-folder"]
    path: str
    follow_links: bool = False
    """Whether links may lead out of the path. Links inside it are always followed."""


def read(section: ImageFolderSource, _fields: Mapping[str, Kind]) -> Reading:
    """Images below path/<label>/, or path/<split>/<label>/.

    Raises:
        InputError: an image lies in no label's folder, or a label's folder beside train/ and test/, there is nothing to
            train on, there is one label only, or a label's folder has no images.
    """
    root, paths = files.find(_selection(section))
    splits = own_splits(root, paths)
    names = [path.relative_to(root) for path in paths]
    location = f"data.source.path: {section.path}"
    notes = unused(location, names, splits, labelled=True)
    labels_and_splits = {path: _label_and_split(section, name, splits) for path, name in zip(paths, names, strict=True)}
    check_labels(root, splits, {label for label, _ in labels_and_splits.values()}, location)
    split_sizes = sizes((split, 1) for _, split in labels_and_splits.values())
    return Reading(len(paths), _records(root, labels_and_splits), tuple(notes), split_sizes)


def own_splits(root: Path, paths: Sequence[Path]) -> dict[str, Split]:
    """The sub-folders that are splits: two or more, or train/ alone if all images are below it.

    Raises:
        InputError: there is nothing to train on.
    """
    return files.own_splits(root) or _only_split(root, paths)


def check_labels(root: Path, splits: Iterable[str], labels: Collection[str], location: str) -> None:
    """Reject a single label, and a label's folder without an image: a wrong path, or a format that is not read.

    Args:
        root: the folder.
        splits: its sub-folders that are splits.
        labels: the labels of all images.
        location: the beginning of messages.
    """
    if len(set(map(canonical, labels))) < 2:
        label = min(labels)
        raise InputError(
            f"{location}: all images lie in {label}/; a classifier needs two labels or more, a folder each"
        )
    above = [root / split for split in splits] or [root]
    folders = {path.name for folder in above for path in folder.iterdir() if path.is_dir()}
    empty = sorted(name for name in folders.difference(labels) if not name.startswith("."))
    if empty:
        names = ", ".join(f"{name}/" for name in empty[:3]) + (", ..." if len(empty) > 3 else "")
        raise InputError(
            f"{location}: no images are in {names}, and a folder is a label. Put some there "
            f"({' '.join(sorted(SUFFIXES))}), or move the folder away."
        )


def digest(section: ImageFolderSource, fingerprints: Fingerprints) -> str:
    """One SHA-256 over names and contents of the files."""
    return files.digest(_selection(section), fingerprints)


def _selection(section: ImageFolderSource) -> files.FileSelection:
    return files.FileSelection(
        section.path, "**/*", f"images ({' '.join(sorted(SUFFIXES))})", SUFFIXES, follow_links=section.follow_links
    )


def _only_split(root: Path, paths: Sequence[Path]) -> dict[str, Split]:
    """train/ if all images are below it; beside other folders it is a label's folder like them."""
    (first, *other_folders) = {path.relative_to(root).parts[0] for path in paths}
    split = split_named(first)
    if other_folders or split is None:
        return {}
    check_trainable(f"data.source.path: {root}", {first: split})
    return {first: split}


def _records(root: Path, labels_and_splits: dict[Path, LabelAndSplit]) -> Iterator[Raw | Broken]:
    for path, (label, split) in labels_and_splits.items():
        yield files.read_file(root, path, label, split)


def _label_and_split(section: ImageFolderSource, path: Path, splits: dict[str, Split]) -> LabelAndSplit:
    folders = path.parts[:-1]
    if not splits and folders:
        return folders[0], None
    if len(folders) > 1 and folders[0] in splits:
        return folders[1], splits[folders[0]]
    layout = "<label>/"
    if splits:
        layout = "<label>/ below " + " or ".join(f"{name}/" for name in splits)
    raise InputError(f"data.source.path: {section.path}: {path} lies in no label's folder. Move it to {layout}.")


SOURCE = DataSource(ImageFolderSource, frozenset({"image", "label"}), read, digest)
