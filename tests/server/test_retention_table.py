from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from understudy_server.retention_table import create_table, needed_by, retain


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    created = create_engine(f"sqlite:///{tmp_path}/kept.db")
    create_table(created)
    yield created
    created.dispose()


def test_a_protected_object_names_the_version_that_needs_it(engine: Engine) -> None:
    retain(engine, {("run", "r"): "version 1", ("files", "1/r"): "version 1"})
    retain(engine, {("run", "r"): "version 2"})
    create_table(engine)
    assert needed_by(engine, "run", ["s", "r"]) == "version 1"
    assert needed_by(engine, "files", ["1", "1/r", "1/r/a"]) == "version 1"
    for kind, names in (("run", ["s"]), ("experiment", ["r"]), ("run", [])):
        assert needed_by(engine, kind, names) == ""


def test_many_that_keep_at_once_keep_all(engine: Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: retain(engine, {("run", str(number % 5)): str(number)}), range(40)))
    assert all(needed_by(engine, "run", [str(number)]) for number in range(5))
