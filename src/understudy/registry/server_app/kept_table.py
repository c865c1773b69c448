"""The table of what promoted versions need, in the server's database: rows are added to it, and nothing else.

A table of its own, since every write to a run or a file asks it: a look at a primary key costs less than a search.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from sqlalchemy import Column, Engine, MetaData, String, Table, Text, insert, select
from sqlalchemy.exc import IntegrityError

from understudy.store.files import sha256

Kind = Literal["experiment", "run", "logged-model", "files"]

KEPT = Table(
    "understudy_kept",
    MetaData(),
    Column("kind", String(16), primary_key=True),
    Column("digest", String(64), primary_key=True),  # SHA-256 of the id: a path may be longer than a key can be
    Column("id", Text, nullable=False),
    Column("needed_by", Text, nullable=False),
)


def make_table(engine: Engine) -> None:
    """Make the table, or find it made."""
    KEPT.metadata.create_all(engine)


def keep(engine: Engine, things: Mapping[tuple[Kind, str], str]) -> None:
    """Keep things from now on; those that are kept stay as they are.

    Args:
        engine: the server's database.
        things: by kind and id, who needs them, in words.
    """
    for (kind, name), needed_by in things.items():
        if not needed(engine, kind, [name]):
            try:
                with engine.begin() as connection:
                    row = {"kind": kind, "digest": sha256(name.encode()), "id": name, "needed_by": needed_by}
                    connection.execute(insert(KEPT).values(row))
            except IntegrityError:  # a server beside this one was as quick
                continue


def needed(engine: Engine, kind: Kind, names: Iterable[str]) -> str:
    """Who needs the first of these things that is needed; nothing when nobody does."""
    digests = [sha256(name.encode()) for name in names]
    wanted = select(KEPT.c.needed_by).where(KEPT.c.kind == kind, KEPT.c.digest.in_(digests)).limit(1)
    with engine.connect() as connection:
        return str(connection.execute(wanted).scalar() or "")
