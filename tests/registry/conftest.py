"""MLflow for tests: the local backend, a real server, and pipeline runs to register."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.registry.submitted import RECIPE, Pipeline, Server, start_server
from understudy.registry.server import tracking_uri


@pytest.fixture(scope="session", autouse=True)
def databases_without_sync() -> Iterator[None]:
    """No test takes the machine's power away, so that SQLite need not wait for the disk at each of 100 commits that a
    registration takes.
    """

    def connected(connection: Any, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", connected)
    yield
    event.remove(Engine, "connect", connected)


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """The process's environment as it was, and no server in it."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The local backend, one for all tests of a module."""
    return tracking_uri(tmp_path_factory.mktemp("home") / ".understudy", None)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start_server(tmp_path_factory.mktemp("server"))
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture
def pipeline(tmp_path: Path, local: str) -> Pipeline:
    """A pipeline run on the local backend; its registered model's name is its own."""
    return Pipeline(tmp_path, local, {**RECIPE, "register": {"model": tmp_path.name, "experiment": tmp_path.name}})


@pytest.fixture
def make_pipeline(tmp_path: Path) -> Callable[..., Pipeline]:
    return lambda uri, recipe=None: Pipeline(tmp_path, uri, recipe)
