"""What two requests make at the same time is made once; the rest: test_tenancy.py and test_sign_in.py."""

import importlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.server.store import accounts_in


def assign(store: Any, user: int, role: int) -> None:
    """Give an account a role as MLflow does after it looked whether it has it."""
    models = importlib.import_module("mlflow.server.auth.db.models")
    with store.ManagedSessionMaker(read_only=False) as session:
        session.add(models.SqlUserRoleAssignment(user_id=user, role_id=role))
        session.flush()


def test_a_role_that_another_request_gave_meanwhile_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, store = accounts_in(tmp_path, monkeypatch)
    ownership = importlib.import_module("understudy_server.ownership")
    user, role = store.create_user("rita", "password-of-rita").id, store.create_role("team:vision:read", "default").id
    for _ in range(2):
        ownership._unless_existing(partial(assign, store, user, role))
    assert [result.id for result in store.list_user_roles(user)] == [role]
    with pytest.raises(Exception, match="FOREIGN KEY"):
        ownership._unless_existing(partial(assign, store, user, role + 1))
