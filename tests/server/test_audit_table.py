import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from understudy.registry.audit import PAGE, PAGE_LENGTH, verify
from understudy_server.audit_table import append, create_table, lines_after


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    created = create_engine(f"sqlite:///{tmp_path}/audit.db")
    create_table(created)
    yield created
    created.dispose()


def test_many_that_write_at_once_make_one_chain(engine: Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        written = list(pool.map(lambda number: append(engine, {"what": number}), range(40)))
    lines = lines_after(engine, 0)
    assert verify(lines).lines == 40
    assert sorted(lines) == sorted(written)
    assert sorted(json.loads(line)["what"] for line in lines) == list(range(40))


def test_a_table_that_was_made_keeps_its_lines(engine: Engine) -> None:
    append(engine, {})
    create_table(engine)
    assert len(lines_after(engine, 0)) == 1


def test_lines_come_in_pages(engine: Engine) -> None:
    for number in range(PAGE + 1):
        append(engine, {"what": number})
    assert [len(lines_after(engine, after)) for after in (0, PAGE, PAGE + 1)] == [PAGE, 1, 0]


def test_a_page_of_long_lines_has_few(engine: Engine) -> None:
    long = "x" * (PAGE_LENGTH * 2 // 3)
    for _ in range(3):
        append(engine, {"what": long})
    append(engine, {"what": long * 2})
    assert [len(lines_after(engine, after)) for after in (0, 2, 3, 4)] == [2, 2, 1, 0]
