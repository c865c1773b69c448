from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from understudy_server.retention_table import keep, make_table, needed


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path}/kept.db")
    make_table(made)
    yield made
    made.dispose()


def test_what_is_kept_says_who_needs_it(engine: Engine) -> None:
    keep(engine, {("run", "r"): "version 1", ("files", "1/r"): "version 1"})
    keep(engine, {("run", "r"): "version 2"})
    make_table(engine)
    assert needed(engine, "run", ["s", "r"]) == "version 1"
    assert needed(engine, "files", ["1", "1/r", "1/r/a"]) == "version 1"
    assert needed(engine, "run", ["s"]) == needed(engine, "experiment", ["r"]) == needed(engine, "run", []) == ""


def test_many_that_keep_at_once_keep_all(engine: Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: keep(engine, {("run", str(number % 5)): str(number)}), range(40)))
    assert all(needed(engine, "run", [str(number)]) for number in range(5))
