"""Relocation of a local registry's artifacts: they stay beside its database when it moves.

MLflow stores absolute locations of every experiment, run and version in the database, and creates missing folders. So a
moved home would get a second folder at its old path, and a copy would write into the original. No location in MLflow
3.17 is relative to the database: a relative one starts at the working directory, and `mlflow-artifacts:` needs a
server. So every process that opens the database compares the locations, and rewrites them once.
"""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from understudy.errors import InputError, UnderstudyError

FOLDER = "mlartifacts"
log = logging.getLogger(__name__)

PATIENCE = 60.0  # seconds to wait for another process's lock on the database

# MLflow's tables and columns with artifact locations. Those that another version of MLflow lacks are skipped.
LOCATIONS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("trace_tags", "value"),
)
# Rows whose files existed when the database was copied: an experiment may have none, and an unfinished run may have got
# its files since.
WITH_FILES = {"experiments": "FALSE", "runs": "status NOT IN ('RUNNING', 'SCHEDULED')"}
DEFAULT = 0  # the id of the experiment that MLflow creates with the database
IS_BELOW = "({0} = ? OR substr({0}, 1, ?) = ?)"


def location_beside(database: Path) -> str:
    """The location of a database's artifacts, in MLflow's format."""
    return database.absolute().with_name(FOLDER).as_uri()


def relocate(database: Path) -> None:
    """Rewrite the artifact locations in a database to the folder beside it, unless they are right already.

    Raises:
        InputError: the artifacts are still at their former location; only the database was moved or copied.
        UnderstudyError: the database cannot be read or written.
    """
    location = location_beside(database)
    address = f"{database.absolute().as_uri()}?mode=rw"  # does not create a missing file
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None)) as connection:
            if not _former_locations(connection, location):
                return
            # The second of two processes waits here, and then finds nothing to do: the query above may be stale by now.
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                for former in _former_locations(connection, location):
                    _check_artifacts_moved(connection, database, former)
                    _rewrite(connection, former, location)
                    log.info("%s: its artifacts lay in %s before; their locations were rewritten", database, former)
    except sqlite3.Error as error:
        raise UnderstudyError(f"{database}: MLflow's database cannot be used ({error})") from error


def _former_locations(connection: sqlite3.Connection, current: str) -> list[str]:
    """The former locations of this database's artifacts.

    They follow from the experiment Default, which is created with the database, at .../mlartifacts/0. If understudy 0.1
    or MLflow itself created the database, Default can be anywhere; then they follow from the experiments that
    understudy creates at .../mlartifacts. A location elsewhere, or in a bucket, was chosen on purpose and stays.
    """
    if ("experiments", "artifact_location") not in _columns(connection):
        return []
    locations = dict(connection.execute("SELECT experiment_id, artifact_location FROM experiments"))
    default = str(locations.get(DEFAULT)).removesuffix(f"/{DEFAULT}")
    former = (
        {default}
        if _is_ours(default)
        else {str(location) for location in locations.values() if _is_ours(str(location))}
    )
    return sorted(location for location in former if location != current and not _is_same_folder(location, current))


def _is_ours(location: str) -> bool:
    return location.startswith("file:///") and location.endswith(f"/{FOLDER}")


def _is_same_folder(first: str, second: str) -> bool:
    """Whether two locations are one folder, as through a link: then both remain valid."""
    try:
        return _path(first).samefile(_path(second))
    except OSError:  # the old one is gone, now a file, or another user's
        return False


def _check_artifacts_moved(connection: sqlite3.Connection, database: Path, former: str) -> None:
    source, target = _path(former), database.absolute().with_name(FOLDER)
    for table, column in _columns(connection):
        for location in _with_files(connection, table, column, former):
            relative = _path(location).relative_to(source)
            if (source / relative).exists() and not (target / relative).exists():
                raise InputError(
                    f"{database}: its artifacts are still in {source}; move or copy that folder to {target}, or put "
                    "the database back"
                )


def _rewrite(connection: sqlite3.Connection, former: str, current: str) -> None:
    for table, column in _columns(connection):
        connection.execute(
            f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE {IS_BELOW.format(column)}",
            (current, len(former) + 1, *_bounds(former)),
        )


def _with_files(connection: sqlite3.Connection, table: str, column: str, former: str) -> Iterator[str]:
    condition = f"{IS_BELOW.format(column)} AND {WITH_FILES.get(table, 'TRUE')}"
    query = f"SELECT DISTINCT {column} FROM {table} WHERE {condition}"
    return (location for (location,) in connection.execute(query, _bounds(former)))


def _bounds(former: str) -> tuple[str, int, str]:
    """The parameters of BELOW, which matches the location itself and any path below it."""
    return former, len(former) + 1, f"{former}/"


def _columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    query = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'"
    columns = set(connection.execute(query))
    return [named for named in LOCATIONS if named in columns]


def _path(location: str) -> Path:
    return Path(unquote(urlsplit(location).path))
