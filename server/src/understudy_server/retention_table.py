"""The append-only table of the requirements of promoted versions, in the server's database.

A separate table, since every write to a run or a file queries it: a primary-key lookup costs less than a search.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from sqlalchemy import Column, Engine, MetaData, String, Table, Text, insert, select
from sqlalchemy.exc import IntegrityError

from understudy.store.files import sha256

Kind = Literal["experiment", "run", "logged-model", "files"]

RETAINED = Table(
    "understudy_kept",
    MetaData(),
    Column("kind", String(16), primary_key=True),
    Column("digest", String(64), primary_key=True),  # SHA-256 of the id: a path may be longer than a key can be
    Column("id", Text, nullable=False),
    Column("needed_by", Text, nullable=False),
)


def create_table(engine: Engine) -> None:
    """Create the table if it does not exist."""
    RETAINED.metadata.create_all(engine)


def retain(engine: Engine, resources: Mapping[tuple[Kind, str], str]) -> None:
    """Retain resources from now on; existing rows stay unchanged.

    Args:
        engine: the server's database.
        resources: by kind and id, a description of the version that needs each.
    """
    for (kind, name), description in resources.items():
        if not needed_by(engine, kind, [name]):
            try:
                with engine.begin() as connection:
                    row = {"kind": kind, "digest": sha256(name.encode()), "id": name, "needed_by": description}
                    connection.execute(insert(RETAINED).values(row))
            except IntegrityError:  # another server inserted it first
                continue


def needed_by(engine: Engine, kind: Kind, names: Iterable[str]) -> str:
    """A description of a version that needs one of these resources; empty if none does."""
    digests = [sha256(name.encode()) for name in names]
    query = select(RETAINED.c.needed_by).where(RETAINED.c.kind == kind, RETAINED.c.digest.in_(digests)).limit(1)
    with engine.connect() as connection:
        return str(connection.execute(query).scalar() or "")
