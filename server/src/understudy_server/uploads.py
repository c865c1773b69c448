"""Uploads in progress: a row in the server's database for each file that is being published.

An upload to S3 becomes visible when it ends, but is authorized before it begins. So a promotion, which forbids later
uploads, must detect those that were authorized and have not ended.
"""

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Column, Engine, Float, MetaData, String, Table, Text, delete, insert, select

MAX_AGE = 24 * 3600.0
"""Seconds after which an upload counts as ended: its server may have been killed, which leaves the row."""

UPLOADS = Table(
    "understudy_uploads",
    MetaData(),
    Column("id", String(32), primary_key=True),
    Column("path", Text, nullable=False),
    Column("began", Float, nullable=False),
)


def create_table(engine: Engine) -> None:
    """Create the table if it does not exist."""
    UPLOADS.metadata.create_all(engine)


@contextmanager
def uploading(engine: Engine, path: str) -> Iterator[None]:
    """Context in which the server publishes a file.

    Args:
        engine: the server's database.
        path: the file's canonical path below the server's root.
    """
    row = {"id": secrets.token_hex(16), "path": path, "began": time.time()}
    with engine.begin() as connection:
        connection.execute(insert(UPLOADS).values(row))
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(delete(UPLOADS).where(UPLOADS.c.id == row["id"]))


def folders(path: str) -> list[str]:
    """A path and all folders above it."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def in_progress(engine: Engine, directories: Iterable[str]) -> list[str]:
    """The files below these folders that a server is publishing."""
    parents = set(directories)
    with engine.connect() as connection:
        query = select(UPLOADS.c.path).where(UPLOADS.c.began > time.time() - MAX_AGE)
        return sorted(path for path in connection.execute(query).scalars() if not parents.isdisjoint(folders(path)))
