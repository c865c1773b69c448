"""The table of what promoted versions need, in the server's database: rows are added to it, and nothing else.

A table of its own, since every write to a run or a file asks it: a look at a primary key costs less than a search.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from sqlalchemy import Column, Engine, MetaData, String, Table, Text, insert, select
from sqlalchemy.exc import IntegrityError

Kind = Literal["experiment", "run", "logged-model", "files"]

KEPT = Table(
    "understudy_kept",
    MetaData(),
    Column("kind", String(16), primary_key=True),
    Column("id", String(500), primary_key=True),
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
                    connection.execute(insert(KEPT).values(kind=kind, id=name, needed_by=needed_by))
            except IntegrityError:  # a server beside this one was as quick
                continue


def needed(engine: Engine, kind: Kind, names: Iterable[str]) -> str:
    """Who needs the first of these things that is needed; nothing when nobody does."""
    wanted = select(KEPT.c.needed_by).where(KEPT.c.kind == kind, KEPT.c.id.in_(list(names))).limit(1)
    with engine.connect() as connection:
        return str(connection.execute(wanted).scalar() or "")
