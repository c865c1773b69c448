"""Databases of an older MLflow, made by MLflow's own migrations up to then, in SQLite and in a real PostgreSQL."""

import importlib
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import Engine, MetaData, create_engine, inspect, text

from tests.registry import postgres
from tests.server.accounts import SETTINGS
from understudy.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # MLflow's alembic.ini
RUNS, ACCOUNTS = "bf29a5ff90ea", "8606fa83a998"  # of MLflow 3.5, and the first of its accounts' tables
FILES = "mlflow-artifacts:/7/r1/artifacts"
ROWS: list[tuple[str, dict[str, object]]] = [
    ("experiments", {"experiment_id": 7, "name": "digits", "lifecycle_stage": "active"}),
    (
        "runs",
        {"run_uuid": "r1", "experiment_id": 7, "status": "FINISHED", "lifecycle_stage": "active"}
        | {"user_id": "pipeline", "source_type": "LOCAL", "start_time": 1, "artifact_uri": FILES},
    ),
    ("metrics", {"run_uuid": "r1", "key": "accuracy", "value": 0.975, "timestamp": 1, "step": 0, "is_nan": False}),
    (
        "latest_metrics",
        {"run_uuid": "r1", "key": "accuracy", "value": 0.975, "timestamp": 1, "step": 0, "is_nan": False},
    ),
    ("registered_models", {"name": "digits", "creation_time": 1}),
    (
        "model_versions",
        {"name": "digits", "version": 1, "source": f"{FILES}/model", "run_id": "r1", "current_stage": "None"},
    ),
    ("registered_model_aliases", {"name": "digits", "alias": "champion", "version": 1}),
    ("users", {"username": "rita", "password_hash": "hash", "is_admin": False}),
]


@pytest.fixture(scope="module")
def schema() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's server imports what starlette deprecates
        return importlib.import_module("understudy_server.schema")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/mlflow.db"
        return
    with postgres.running() as uri:
        yield uri


def older(uri: str) -> Engine:
    """Fill a database as an older MLflow left it."""
    from alembic import command
    from mlflow.server.auth.db import utils as accounts_schema
    from mlflow.store.db import utils as mlflow_schema

    engine = create_engine(uri)
    mlflow_schema.InitialBase.metadata.create_all(engine)
    config = mlflow_schema._get_alembic_config(uri)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, RUNS)
    command.upgrade(accounts_schema._get_alembic_config(uri), ACCOUNTS)
    tables = MetaData()
    tables.reflect(engine)
    with engine.begin() as connection:
        for name, row in ROWS:
            connection.execute(tables.tables[name].insert().values(row))
    return engine


def test_an_older_database_is_refused_until_the_job_has_upgraded_it_and_has_all_its_rows_then(
    schema: ModuleType, database: str
) -> None:
    engine = older(database)
    before = set(inspect(engine).get_table_names())
    with pytest.raises(InputError, match=rf"{RUNS}.*accounts: {ACCOUNTS}.*The Job mlflow-upgrade"):
        schema.check(database)
    assert set(inspect(engine).get_table_names()) == before, "it looked, and changed nothing"

    done = schema.upgrade(database)
    assert [line.split(" -> ")[0] for line in done] == [f"runs and models: {RUNS}", f"accounts: {ACCOUNTS}"]
    schema.check(database)
    assert all(line.endswith(" already") for line in schema.upgrade(database))

    from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as Registry
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore as Tracking

    tracking, registry = Tracking(database, "mlflow-artifacts:/"), Registry(database)
    run = tracking.get_run("r1")
    assert (run.data.metrics, run.info.experiment_id) == ({"accuracy": 0.975}, "7")
    assert registry.get_model_version_by_alias("digits", "champion").source.endswith("r1/artifacts/model")
    with engine.connect() as connection:
        assert connection.execute(text("select username from users")).scalars().all() == ["rita"]
    assert {"understudy_audit", "understudy_kept"} <= set(inspect(engine).get_table_names())
    for opened in (engine, tracking.engine, registry.engine):
        opened.dispose()


def test_a_database_that_a_newer_mlflow_has_upgraded_is_refused(schema: ModuleType, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    schema.check(uri)  # an empty one is filled by who comes
    schema.upgrade(uri)
    engine = create_engine(uri)
    with engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = 'ffffffffffff'"))
    engine.dispose()
    for ask in (schema.check, schema.upgrade):
        with pytest.raises(InputError, match="runs and models is ffffffffffff, which this MLflow does not know"):
            ask(uri)


def test_the_server_does_not_start_on_an_older_database(schema: ModuleType, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    older(uri).dispose()
    command = [sys.executable, "-W", "ignore", "-m", "understudy_server.app", "--port", "0"]
    environment = {**os.environ, **SETTINGS, "MLFLOW_BACKEND_STORE_URI": uri}
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=500)
    assert outcome.returncode == 1
    assert "the MLflow server does not start: MLFLOW_BACKEND_STORE_URI: the database has the schema" in outcome.stderr
