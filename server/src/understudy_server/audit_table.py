"""The append-only table of audit lines, in the server's database."""

from typing import Any

from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, insert, select
from sqlalchemy.exc import IntegrityError

from understudy.registry.audit import FIRST, PAGE, PAGE_LENGTH, digest_of, sealed

LINES = Table(
    "understudy_audit",
    MetaData(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("line", Text, nullable=False),
)


def create_table(engine: Engine) -> None:
    """Create the table if it does not exist."""
    LINES.metadata.create_all(engine)


def append(engine: Engine, entry: dict[str, Any]) -> str:
    """Append an entry and return its line.

    If two servers insert the same number, the database accepts one; the other retries with the next number.
    """
    query = select(LINES.c.number, LINES.c.line).order_by(LINES.c.number.desc()).limit(1)
    while True:
        with engine.connect() as connection:
            last = connection.execute(query).first()
        number, previous = (last.number + 1, digest_of(last.line)) if last else (1, FIRST)
        line = sealed(entry, number, previous)
        try:
            with engine.begin() as connection:
                connection.execute(insert(LINES).values(number=number, line=line))
        except IntegrityError:
            continue
        return line


def lines_after(engine: Engine, number: int) -> list[str]:
    """The lines after a number, as many as fit a page: at least one, if there is any."""
    query = select(LINES.c.line).where(LINES.c.number > number).order_by(LINES.c.number).limit(PAGE)
    lines, length = list[str](), 0
    with engine.connect() as connection:
        for line in connection.execution_options(yield_per=10).execute(query).scalars():
            lines.append(line)
            length += len(line)
            if length >= PAGE_LENGTH:
                break
    return lines
