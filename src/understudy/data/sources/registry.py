"""Where records come from: one reader per source, and what identifies a source's content in a step's key.

Nothing heavy is imported here: the pipeline asks for identities before it knows that there is work to do.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from understudy.data.raw import SPLIT_NAMES, Broken, Raw, Reading, Split
from understudy.data.sources import digits, python_docs
from understudy.errors import InputError
from understudy.recipe.data import (
    DigitsSource,
    ImageFolderSource,
    ParquetSource,
    PythonDocsSource,
    Source,
    TextFilesSource,
)
from understudy.store.files import Fingerprints

Files = ImageFolderSource | ParquetSource | TextFilesSource

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})


def read(source: Source) -> Reading:
    """Open a source.

    Raises:
        InputError: the path does not exist, holds nothing to read, or is laid out in a way that has two meanings.
    """
    match source:
        case DigitsSource():
            return digits.read()
        case ImageFolderSource():
            return read_images(source)
        case ParquetSource():
            from understudy.data.sources import parquet

            return parquet.read(source, *files(source))
        case TextFilesSource():
            return read_texts(source)
        case PythonDocsSource():
            return python_docs.read()


def source_identity(source: Source, fingerprints: Fingerprints) -> dict[str, Any]:
    """What a step's key says about a source: a digest of its content, wherever that lies and whenever it was written.

    A file is read again when its inode says that it was touched (see Fingerprints); the built-in sources are small
    and read every time.

    Raises:
        InputError: the path does not exist or holds nothing to read.
    """
    match source:
        case DigitsSource():
            digest = digits.digest()
        case PythonDocsSource():
            digest = python_docs.digest()
        case _:
            root, _ = files(source)
            digest = fingerprints.tree(root, _pattern(source))
    return {"type": source.type, "sha256": digest}


def files(source: Files) -> tuple[Path, list[Path]]:
    """The folder that names are relative to, and the files that the source reads, sorted; hidden ones do not count.

    Raises:
        InputError: there are none, or a name is not UTF-8.
    """
    root = Path(source.path).expanduser()
    if not root.exists():
        raise InputError(
            f"data.source.path: {source.path} does not exist. Give a path that does; "
            f"a relative one starts at the folder that the command runs in, now {Path.cwd()}."
        )
    if root.is_file() and isinstance(source, ParquetSource):
        return root.parent, [root]
    if not root.is_dir():
        raise InputError(f"data.source.path: {source.path} is not a folder. Give the folder that holds the files.")
    found = _matching(root, source)
    if not found:
        raise InputError(
            f"data.source.path: {source.path} holds no {_wanted(source)}{_instead(root)}. "
            "Put some there or give another path."
        )
    return root, found


def own_splits(root: Path) -> dict[str, Split]:
    """The sub-folders that are splits: train/ with test/, validation/, valid/ or val/ beside it; otherwise none are.

    They may be written in any case.
    """
    folders = sorted(path.name for path in root.iterdir() if path.is_dir())
    present = {name: SPLIT_NAMES[known] for known in SPLIT_NAMES for name in folders if name.lower() == known}
    return present if "train" in present.values() and len(set(present.values())) > 1 else {}


def read_images(source: ImageFolderSource) -> Reading:
    """Images below path/<label>/, or path/<split>/<label>/.

    Raises:
        InputError: an image lies in no label's folder, or a label's folder beside train/ and test/.
    """
    root, found = files(source)
    splits = own_splits(root)
    places = [_image_place(source, path.relative_to(root), splits) for path in found]
    return Reading(
        len(found), (_file(root, path, label, split) for path, (label, split) in zip(found, places, strict=True))
    )


def read_texts(source: TextFilesSource) -> Reading:
    """One document a file."""
    root, found = files(source)
    splits = own_splits(root)
    return Reading(len(found), _texts(root, found, splits))


def _texts(root: Path, found: list[Path], splits: dict[str, Split]) -> Iterator[Raw | Broken]:
    for path in found:
        yield _file(root, path, None, splits.get(path.relative_to(root).parts[0]))


def _file(root: Path, path: Path, label: str | None, split: Split | None) -> Raw | Broken:
    name = path.relative_to(root).as_posix()
    try:
        return Raw(name, path.read_bytes(), label, split)
    except OSError as error:
        return Broken(name, f"cannot be read ({error.strerror})")


def _image_place(source: ImageFolderSource, path: Path, splits: dict[str, Split]) -> tuple[str, Split | None]:
    parts = path.parts[:-1]
    if not splits and parts:
        return parts[0], None
    if len(parts) > 1 and parts[0] in splits:
        return parts[1], splits[parts[0]]
    layout = "/<label>/ below " + " or ".join(f"{name}/" for name in splits) if splits else "<label>/"
    raise InputError(f"data.source.path: {source.path}: {path} lies in no label's folder. Move it to {layout}.")


def _matching(root: Path, source: Files) -> list[Path]:
    pattern = _pattern(source)
    try:
        if ".." in Path(pattern).parts:
            raise ValueError("it leads out of data.source.path")
        found = sorted(path for path in root.glob(pattern) if path.is_file())
        visible = [path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts)]
    except (ValueError, NotImplementedError) as error:
        raise InputError(
            f"data.source.glob: {pattern!r} does not fit ({error}). Give a pattern below path, such as **/*.txt."
        ) from error
    for path in (*root.glob("[!.]*"), *root.glob("[!.]*/[!.]*")):
        if path.is_symlink() and path.is_dir():
            raise InputError(
                f"data.source.path: {path} is a link to a folder; links are not followed, put it there itself"
            )
    for path in visible:
        _check_name(path)
    return [path for path in visible if not isinstance(source, ImageFolderSource) or _is_image(path)]


def _check_name(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"data.source.path: {str(path)!a}: the name is not UTF-8. Rename it.") from error


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES


def _pattern(source: Files) -> str:
    match source:
        case ImageFolderSource():
            return "**/*"
        case ParquetSource():
            return "**/*.parquet"
        case TextFilesSource():
            return source.glob


def _instead(root: Path) -> str:
    """What a folder holds that its source does not read; what is hidden does not count."""
    names = sorted(os.fsencode(path.name).decode(errors="backslashreplace") for path in root.glob("[!.]*"))
    if not names:
        return ", nor anything else that is not hidden"
    return f", only {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if names[3:] else "")


def _wanted(source: Files) -> str:
    match source:
        case ImageFolderSource():
            return f"images ({' '.join(sorted(IMAGE_SUFFIXES))})"
        case ParquetSource():
            return "*.parquet files"
        case TextFilesSource():
            return f"files that match data.source.glob {source.glob}"
