"""The MLflow server's app: MLflow's own accounts, and one rule more, that only reviewers move the alias `champion`.

MLflow's app `basic-auth` knows who may edit a model, not which of its aliases: whoever may set `challenger` may set
`champion`, and the account that made a model may do anything with it. So every request that can move or remove
`champion` is asked here first; the requests are those of MLflow's own table, at all of their addresses.

`python -m understudy.registry.server_app.app ARGUMENTS` makes the accounts and becomes `mlflow server ARGUMENTS` with
this app.
"""

import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from flask import g
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED, RESOURCE_DOES_NOT_EXIST, ErrorCode
from mlflow.protos.model_registry_pb2 import (
    DeleteModelVersion,
    DeleteRegisteredModel,
    DeleteRegisteredModelAlias,
    ModelRegistryService,
    RenameRegisteredModel,
    SetRegisteredModelAlias,
)
from mlflow.server import auth, handlers

from understudy import logs
from understudy.errors import InputError
from understudy.registry.names import CHAMPION

APP = "understudy"  # the name of create_app among pyproject.toml's entry points
CONFIG = Path(__file__).with_name("accounts.ini")
DATABASE = "MLFLOW_BACKEND_STORE_URI"
REVIEWERS = "UNDERSTUDY_REVIEWERS"
log = logging.getLogger("understudy.registry.server_app.app")  # `python -m` calls this module __main__
USERNAME, PASSWORD = "UNDERSTUDY_PIPELINE_USERNAME", "UNDERSTUDY_PIPELINE_PASSWORD"
SHORTEST = 12  # characters of a password; MLflow's own rule


class Rule(NamedTuple):
    """What a request would do to the champion, in words or nothing; and what a reviewer needs for it besides."""

    change: Callable[[Any], str]
    reviewer: Callable[[], bool] | None = None  # None: what MLflow asks of everybody


def _set(message: Any) -> str:
    return f"move the alias {CHAMPION} of {message.name}" if _is_champion(message.alias) else ""


def _unset(message: Any) -> str:
    return f"remove the alias {CHAMPION} of {message.name}" if _is_champion(message.alias) else ""


def _delete_version(message: Any) -> str:
    found = _found("get_model_version", message.name, message.version)
    if found is None or not any(map(_is_champion, found.aliases)):
        return ""
    return f"delete version {found.version} of {message.name}, which has the alias {CHAMPION}"


def _change_model(verb: str, message: Any) -> str:
    found = _found("get_registered_model", message.name)
    if found is None or not any(map(_is_champion, found.aliases)):
        return ""
    return f"{verb} {message.name}, which has a version with the alias {CHAMPION}"


# A reviewer need not be able to edit a model to move its champion, only to read it.
RULES: dict[type[object], Rule] = {
    SetRegisteredModelAlias: Rule(_set, auth.validate_can_read_model_or_prompt_version),
    DeleteRegisteredModelAlias: Rule(_unset, auth.validate_can_read_model_or_prompt_version),
    DeleteModelVersion: Rule(_delete_version),
    DeleteRegisteredModel: Rule(partial(_change_model, "delete")),
    RenameRegisteredModel: Rule(partial(_change_model, "rename")),
}


def create_app() -> Any:
    """The app, for `mlflow server --app-name understudy`: made once in every worker.

    Raises:
        InputError: a setting is missing or wrong.
    """
    _configure()
    guard(reviewers())
    return auth.create_app()


def guard(names: list[str]) -> None:
    """Put the rule before MLflow's own check of every request that it is about. Admins pass MLflow's checks unasked."""
    guarded = set()
    for path, request, methods in handlers.get_service_endpoints(ModelRegistryService, lambda request: request):
        if request in RULES:
            guarded.add(request)
            for method in methods:
                checked = auth.BEFORE_REQUEST_VALIDATORS[path, method]
                auth.BEFORE_REQUEST_VALIDATORS[path, method] = partial(_allowed, names, request, checked)
    assert guarded == RULES.keys(), "this MLflow has other requests; some requests would be unguarded"


def _allowed(names: list[str], request: Any, checked: Callable[[], bool]) -> bool:
    rule = RULES[request]
    change = rule.change(handlers._get_request_message(request()))  # read as the handler will read it
    if not change:
        return checked()
    account = g.mlflow_authenticated_user
    if account not in names:
        raise MlflowException(
            f"{account} may not {change}. Admins and reviewers may; reviewers are {', '.join(names) or 'nobody'} "
            f"({REVIEWERS} of the server).",
            PERMISSION_DENIED,
        )
    return rule.reviewer() if rule.reviewer else checked()


def _is_champion(alias: str) -> bool:
    return alias.lower() == CHAMPION  # some databases compare without case


def _found(method: str, *key: str) -> Any:
    """What the registry has; None when there is no such thing, which MLflow's own check then deals with."""
    try:
        return getattr(handlers._get_model_registry_store(), method)(*key)
    except MlflowException as error:
        if error.error_code == ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            return None
        raise


def reviewers() -> list[str]:
    """The accounts that may move the champion: none where the setting is missing."""
    names = [name.strip() for name in os.environ.get(REVIEWERS, "").split(",")]
    return [name for name in names if name]


def main() -> None:
    """Make the accounts and become the server: what is wrong is said once, before any worker is there."""
    try:
        logs.configure()
        make_accounts()
    except (InputError, MlflowException) as error:
        sys.exit(f"the MLflow server does not start: {error}")
    os.environ["MLFLOW_AUTH_CONFIG_PATH"] = str(CONFIG)
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", "server", "--app-name", APP, *sys.argv[1:]])


def make_accounts() -> None:
    """Make the admin's account and the pipeline's, or find them made. The pipeline's gets the password that is set now.

    Raises:
        InputError, MlflowException: a setting is missing or wrong.
    """
    _configure()
    name, password = _setting(USERNAME), _setting(PASSWORD)
    if len(password) < SHORTEST:
        raise InputError(f"{PASSWORD}: a password needs {SHORTEST} characters or more")
    if name in reviewers():
        raise InputError(f"{REVIEWERS}: {name} is the pipeline's account; what trains a model must not promote it")
    auth.get_flask_server_secret_key()
    auth.bootstrap_admin_user()
    if not auth.store.has_user(name):
        _create(name, password)
    if auth.store.get_user(name).is_admin:
        raise InputError(f"{USERNAME}: {name} is an admin; the pipeline needs an account that is none")
    if not auth.store.authenticate_user(name, password):
        auth.store.update_user(name, password=password)
    for reviewer in reviewers():
        if not auth.store.has_user(reviewer):
            log.warning("%s: %s has no account yet", REVIEWERS, reviewer)


def _create(name: str, password: str) -> None:
    try:
        auth.store.create_user(name, password)
    except MlflowException:
        if not auth.store.has_user(name):  # else a server that starts beside this one has made it
            raise


def _configure() -> None:
    """Accounts live in the database of the runs and models that they may use."""
    auth.auth_config = auth.auth_config._replace(database_uri=_setting(DATABASE))


def _setting(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise InputError(f"{name} is not set; docs/cluster.md says which Secret has it")
    return value


if __name__ == "__main__":
    main()
