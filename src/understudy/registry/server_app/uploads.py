"""The files that the server is putting in their place now: a row for each, in its database, for the time that it takes.

An upload to S3 shows when it ends, and whether it may be made is asked before. So a promotion, which forbids uploads
from then on, has to know of those that were allowed and have not ended.
"""

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Column, Engine, Float, MetaData, String, Table, Text, delete, insert, select

from understudy.store.files import sha256

LONGEST = 24 * 3600.0
"""Seconds after which an upload counts as ended: its server may have been killed, and the row stayed."""

UPLOADS = Table(
    "understudy_uploads",
    MetaData(),
    Column("id", String(32), primary_key=True),
    Column("folder", String(64), nullable=False, index=True),  # SHA-256 of one folder that the file is below
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
    upload_id = secrets.token_hex(8)
    rows = [
        {"id": f"{upload_id}{depth:04}", "folder": sha256(folder.encode()), "path": path, "began": time.time()}
        for depth, folder in enumerate(folders(path))
    ]
    with engine.begin() as connection:
        connection.execute(insert(UPLOADS), rows)
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(delete(UPLOADS).where(UPLOADS.c.id.in_([row["id"] for row in rows])))


def folders(path: str) -> list[str]:
    """A path and all folders that it is below."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def under_way(engine: Engine, places: Iterable[str]) -> list[str]:
    """The files below these folders that a server is putting in their place."""
    wanted = [sha256(place.encode()) for place in places]
    since = UPLOADS.c.began > time.time() - LONGEST
    with engine.connect() as connection:
        rows = connection.execute(select(UPLOADS.c.path).where(UPLOADS.c.folder.in_(wanted), since)).scalars()
        return sorted(set(rows))
