"""The files that the server is putting in their place now: a row for each, in its database, for the time that it takes.

An upload to S3 shows when it ends, and whether it may be made is asked before. So a promotion, which forbids uploads
from then on, has to know of those that were allowed and have not ended.
"""

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Column, Engine, Float, MetaData, String, Table, Text, delete, insert, select

LONGEST = 24 * 3600.0
"""Seconds after which an upload counts as ended: its server may have been killed, and the row stayed."""

UPLOADS = Table(
    "understudy_uploads",
    MetaData(),
    Column("id", String(32), primary_key=True),
    Column("path", Text, nullable=False),
    Column("began", Float, nullable=False),
)


def make_table(engine: Engine) -> None:
    """Make the table, or find it made."""
    UPLOADS.metadata.create_all(engine)


@contextmanager
def upload(engine: Engine, path: str) -> Iterator[None]:
    """Within this context the server puts a file in its place.

    Args:
        engine: the server's database.
        path: of the file below the server's root, in its one spelling.
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
    """A path and all folders that it is below."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def under_way(engine: Engine, places: Iterable[str]) -> list[str]:
    """The files below these folders that a server is putting in their place."""
    wanted = set(places)
    with engine.connect() as connection:
        lately = select(UPLOADS.c.path).where(UPLOADS.c.began > time.time() - LONGEST)
        return sorted(path for path in connection.execute(lately).scalars() if not wanted.isdisjoint(folders(path)))
