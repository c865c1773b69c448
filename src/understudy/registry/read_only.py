"""Read-only access to a local registry: queries go to a copy of its database, since MLflow may write to it."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from understudy.errors import UnderstudyError
from understudy.registry.relocation import FOLDER
from understudy.registry.server import SQLITE, database


@contextmanager
def readable(uri: str) -> Iterator[str]:
    """The address of a registry for queries: its own, or, if not writable, that of a copy that lives during the body.

    A link to the artifacts lies beside the copy, where the database refers to them.

    Raises:
        UnderstudyError: the database cannot be read.
    """
    path = database(uri)
    if path is None or not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        yield uri
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        _copy(path, copy)
        Path(folder, FOLDER).symlink_to(path.absolute().with_name(FOLDER))
        try:
            yield f"{SQLITE}{copy}"
        except UnderstudyError as error:  # the fault is in the original, so name its folder
            raise type(error)(str(error).replace(folder, str(path.parent))) from error


def _copy(path: Path, copy: Path) -> None:
    try:
        with (
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise UnderstudyError(f"{path}: MLflow's database cannot be read ({error})") from error
