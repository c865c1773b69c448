"""The local registry: a SQLite database in understudy's home, queried through MLflow, with cached results.

Importing MLflow takes seconds. So results are cached beside the database, and are valid while its file is unchanged
(SQLite counts changes in the file's header).
"""

import os
import secrets
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.errors import InputError, disk_errors
from understudy.registry.over_mlflow import OverMlflow, T, connect
from understudy.registry.relocation import location_beside, relocate
from understudy.registry.server import SQLITE, database, translated
from understudy.store.files import read_json, write_json

if TYPE_CHECKING:
    from mlflow import MlflowClient

HEADER = 100  # bytes; the SQLite file format, section 1.3: the change counter is at 24


class LocalDatabase(OverMlflow):
    """A SQLite database and its files."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        path = database(uri)
        assert path is not None
        self._path = path
        self.artifact_location = location_beside(path)

    @cached_property
    def client(self) -> "MlflowClient":
        """MLflow's client; the database is created if it does not exist."""
        self.check()
        with translated(self._uri):
            if not self._path.exists():
                _create(self._path)
        return connect(self._uri)

    def check(self) -> None:
        """See TrackingServer.

        Raises:
            InputError: the database cannot be written, or its artifacts are in another folder.
        """
        folder = self._path.parent
        with disk_errors(self._path):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except FileNotFoundError as error:
                raise InputError(f"{folder}: cannot be made; point --home or --tracking-uri elsewhere") from error
        target = self._path if self._path.exists() else folder
        if not os.access(target, os.W_OK):
            raise InputError(f"{target}: cannot write MLflow's database here; use --home or --tracking-uri")
        if self._path.exists():
            relocate(self._path)

    def _read(self, query: str, read: "Callable[[MlflowClient], T]") -> T | None:
        if not self._path.exists():
            return None
        cache, state = self._path.with_name(f"{self._path.name}.answers.json"), _state(self._path)
        cached = read_json(cache) or {}
        results = cached["answers"] if cached.get("state") == state else {}
        if query not in results:
            results[query] = super()._read(query, read)
            # The state before the query: any later write makes the result stale.
            write_json(cache, {"state": state, "answers": results})
        result: T | None = results[query]
        return result


def _state(path: Path) -> list[Any]:
    """The header of the database, and device, inode, size and mtime of it and its journals; any write changes one."""
    with path.open("rb") as stream:
        header = stream.read(HEADER).hex()
    files = [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))]
    stats = [file.stat() for file in files if file.exists()]
    return [header, *([stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns] for stat in stats)]


def _create(path: Path) -> None:
    """Create the local database aside and link it into place: of two processes one wins; a killed one leaves none."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with disk_errors(path):
        try:
            SqlAlchemyStore(f"{SQLITE}{temporary}", location_beside(path)).search_experiments(max_results=1)
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            for file in temporary.parent.glob(f"{temporary.name}*"):
                file.unlink()
