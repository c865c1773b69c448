"""The MLflow server's app: MLflow with accounts, behind an allowlist, with additional rules and an audit log.

`python -m understudy_server.app ARGUMENTS` creates the accounts and becomes `mlflow server ARGUMENTS`
with this app.
"""

import os
import sys
from pathlib import Path

from fastapi import FastAPI
from mlflow.exceptions import MlflowException
from mlflow.server import app as flask_app
from mlflow.server import auth

from understudy import installation, logs
from understudy.errors import InputError, UnderstudyError
from understudy.registry.middleware.allowlist import with_middleware
from understudy.registry.signature import signing_key
from understudy_server import audit_table, connections, retention_table, schema, uploads
from understudy_server.audit import read_states_before, record_changes
from understudy_server.authentication import with_authentication
from understudy_server.authorization import add_rules
from understudy_server.metrics import with_metrics
from understudy_server.model_names import validate_model_names
from understudy_server.ownership import create_roles
from understudy_server.promotion import handle_promotions, retain_promoted
from understudy_server.retention import add_retention_checks
from understudy_server.schema import DATABASE
from understudy_server.searches import restrict_searches
from understudy_server.sign_in import FUNCTION, accounts
from understudy_server.teams import SETTING
from understudy_server.tenancy import add_tenant_rules
from understudy_server.validation import refuse_ambiguous_requests

APP = "understudy"  # the name of create_app among server/pyproject.toml's entry points
CONFIG = Path(__file__).with_name("accounts.ini")
PACKAGES = ("understudy", "understudy_server")
"""Whose log is the server's, from INFO up."""
TRUSTED_PROXIES = "FORWARDED_ALLOW_IPS"  # read by uvicorn
REMOVED_SETTINGS = ("UNDERSTUDY_REVIEWERS", "UNDERSTUDY_PIPELINE_USERNAME", "UNDERSTUDY_PIPELINE_PASSWORD")


def create_app() -> FastAPI:
    """The app for `mlflow server --app-name understudy`, created once in every worker.

    Raises:
        InputError: a setting is missing or wrong, or the server does not run under uvicorn.
    """
    logs.configure(packages=PACKAGES)
    _configure()
    add_rules()
    add_retention_checks()
    add_tenant_rules()
    restrict_searches()
    refuse_ambiguous_requests(flask_app)
    record_changes(flask_app)
    app = auth.create_app(flask_app)
    validate_model_names(flask_app)
    read_states_before(flask_app)
    handle_promotions(flask_app)
    if not isinstance(app, FastAPI):
        raise InputError("this server runs under uvicorn only: without it, nothing protects MLflow's own routes")
    retain_promoted()
    guarded = with_middleware(with_authentication(app))
    return with_metrics(connections.with_threads(guarded, connections.threads(_setting(DATABASE))))


def main() -> None:
    """Create the accounts and become the server. Errors are reported once, before any worker starts."""
    try:
        logs.configure(packages=PACKAGES)
        installation.check()
        installation.check(CONFIG.parent, [CONFIG.name])
        os.environ[connections.SETTING] = str(
            connections.threads(_setting(DATABASE), connections.workers(sys.argv[1:]))
        )
        create_accounts()
    except (UnderstudyError, MlflowException) as error:
        sys.exit(f"the MLflow server does not start: {error}")
    os.environ["MLFLOW_AUTH_CONFIG_PATH"] = str(CONFIG)
    os.environ["MLFLOW_BASIC_AUTH_FAIL_CLOSED"] = "true"  # refuse requests that no MLflow check covers
    os.environ.setdefault(TRUSTED_PROXIES, "")  # the default trusts loopback clients, a port-forward too
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", "server", "--app-name", APP, *sys.argv[1:]])


def create_accounts() -> None:
    """Create the admin's account, the tables, and the teams' roles if they do not exist.

    Raises:
        InputError, MlflowException: a setting is missing or wrong.
    """
    _configure()
    for name in REMOVED_SETTINGS:
        if os.environ.get(name):
            raise InputError(f"{name}: is not read any more; name reviewers and pipelines in {SETTING}, and remove it")
    accounts()
    signing_key()
    schema.check(_setting(DATABASE))
    auth.get_flask_server_secret_key()
    auth.bootstrap_admin_user()
    audit_table.create_table(auth.store.engine)
    retention_table.create_table(auth.store.engine)
    uploads.create_table(auth.store.engine)
    create_roles(accounts())


def _configure() -> None:
    """Store the accounts in the database of the runs and models that they may use."""
    database = _setting(DATABASE)
    connections.size_pools(database)
    auth.auth_config = auth.auth_config._replace(database_uri=database, authorization_function=FUNCTION)


def _setting(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise InputError(f"{name} is not set; docs/operating/mlflow-server.md says which Secret has it")
    return value


if __name__ == "__main__":
    main()
