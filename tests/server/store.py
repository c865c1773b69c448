"""The accounts of a server in the test's own process, for tests of single requests."""

import importlib
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.registry.submitted import empty_database


def accounts_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, Any]:
    """The module `sign_in`, and the store that it asks: a database in this folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's server imports what starlette deprecates
        sign_in = importlib.import_module("understudy_server.sign_in")
        stored = importlib.import_module("mlflow.server.auth.sqlalchemy_store")
        (folder / "server.db").write_bytes(empty_database())
        store = stored.SqlAlchemyStore()
        store.init_db(f"sqlite:///{folder}/server.db")
        importlib.import_module("understudy_server.audit_table").create_table(store.engine)
    monkeypatch.setattr(sign_in.auth, "store", store)
    return sign_in, store
