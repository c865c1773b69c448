"""As many requests at once as the database has connections for, on a real PostgreSQL too."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio.to_thread
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import NullPool, create_engine, text

from tests.ranks.faults.stage import wait
from tests.registry import postgres
from tests.registry.submitted import Server, start_server
from tests.server.accounts import COMMAND, SETTINGS, TRAINER, ask, done, make_accounts
from tests.server.forks import in_forks
from tests.unit.kube.api_server import ApiServer
from understudy_server.connections import threads, with_threads, workers

POSTGRESQL = "postgresql://database/mlflow"
USUAL = 97
"""Connections that PostgreSQL grants, unless it is told otherwise, to who is no superuser."""


@pytest.mark.parametrize(("servers", "workers"), [(2, 1), (1, 1), (1, 2), (1, 3), (1, 4)])
def test_all_workers_together_have_fewer_connections_than_postgresql_grants(servers: int, workers: int) -> None:
    assert servers * workers * (2 * threads(POSTGRESQL, workers) + 15) < USUAL


def test_an_operator_sets_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert threads("sqlite:////data/mlflow.db", 4) == 40
    monkeypatch.setenv("UNDERSTUDY_MLFLOW_THREADS", "25")
    assert threads(POSTGRESQL, 4) == threads("sqlite:////data/mlflow.db") == 25


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--workers=2"], 2), (["--host", "x", "-w", "3"], 3), (["--host=0.0.0.0"], 4)],
)
def test_workers_are_those_of_mlflows_arguments(arguments: list[str], expected: int) -> None:
    assert workers(arguments) == expected


OVERFLOW = "MLFLOW_SQLALCHEMYSTORE_MAX_OVERFLOW"
BEYOND = [
    ("sqlite:////data/mlflow.db", {}, "75"),
    ("sqlite:////data/mlflow.db", {OVERFLOW: "9"}, "9"),
    (POSTGRESQL, {}, "27"),
]


def test_every_thread_has_two_connections(tmp_path: Path) -> None:
    """Beyond the 5 that SQLAlchemy keeps."""
    environments = [{"MLFLOW_BACKEND_STORE_URI": database, **settings} for database, settings, _ in BEYOND]
    ends = in_forks(f"app._configure(); print(os.environ['{OVERFLOW}'])", environments, tmp_path)
    assert [end.stdout for end in ends] == [f"{expected}\n" for _, _, expected in BEYOND], ends


def test_a_worker_has_its_threads_when_it_has_started() -> None:
    app = with_threads(FastAPI(), 7)

    @app.get("/")
    async def number() -> float:
        return float(anyio.to_thread.current_default_thread_limiter().total_tokens)

    with TestClient(app) as client:
        assert client.get("/").json() == 7


@pytest.fixture
def database() -> Iterator[str]:
    with postgres.running() as address:
        environment = {**os.environ, "MLFLOW_BACKEND_STORE_URI": address}
        command = [sys.executable, "-W", "ignore", "-m", "understudy_server.schema"]
        subprocess.run(command, env=environment, capture_output=True, check=True)
        yield address


@pytest.fixture
def server(database: str, kubernetes: ApiServer, tmp_path: Path) -> Iterator[Server]:
    settings = {**SETTINGS, **kubernetes.environment, "MLFLOW_BACKEND_STORE_URI": database}
    running = start_server(tmp_path, COMMAND, **settings)
    make_accounts(running, TRAINER)
    yield running
    running.stop()


@pytest.mark.full
def test_each_running_request_has_its_two_connections_and_the_rest_wait(
    server: Server, database: str, kubernetes: ApiServer
) -> None:
    """Fifty new clients of one account that is not made yet. All log while a table is locked."""
    pods = [f"Bearer {kubernetes.issue('robots:understudy-pipeline')}" for _ in range(50)]
    engine = create_engine(database, poolclass=NullPool)

    def begun(account: str) -> str:
        created = done(ask(server, account, "POST", "experiments/create", name=secrets.token_hex(8)))
        run = done(ask(server, account, "POST", "runs/create", experiment_id=created["experiment_id"]))["run"]["info"]
        return str(run["run_id"])

    def log(account: str, run: str) -> None:
        points = [{"key": "loss", "value": 1.0, "timestamp": 0, "step": step} for step in range(10)]
        done(ask(server, account, "POST", "runs/log-batch", run_id=run, metrics=points))

    def count(condition: str) -> int:
        with engine.connect() as connection:
            return int(
                connection.execute(text(f"SELECT count(*) FROM pg_stat_activity WHERE {condition}")).scalar_one()
            )

    with ThreadPoolExecutor(50) as pool:
        runs = list(pool.map(begun, pods))
        with engine.begin() as locked:
            locked.execute(text("LOCK TABLE metrics IN ACCESS EXCLUSIVE MODE"))
            logging = [pool.submit(log, *pod_and_run) for pod_and_run in zip(pods, runs, strict=True)]
            at_work = wait(lambda: count("wait_event_type = 'Lock'") == threads(POSTGRESQL), seconds=15, every=0.1)
            opened = count("usename = 'mlflow'")
        for future in logging:
            future.result()
    assert at_work
    assert opened < USUAL / 2
