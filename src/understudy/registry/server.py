"""The address of the tracking server. By default it is a SQLite file in understudy's home, with artifacts beside it.

A URI may contain a user and a password. MLflow gets them through its environment variables. They appear in no log, tag,
file or message: all code except `over_mlflow.connect` and `rest` uses `public_uri`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from understudy.errors import InputError
from understudy.registry import rest

URI = "MLFLOW_TRACKING_URI"
PAGES = "UNDERSTUDY_MLFLOW_UI"
"""The variable with the address of the server's pages for people, if it differs from that for tasks."""
UI_TOKEN = "UNDERSTUDY_UI_TOKEN"  # the variable with the token for the pages of `understudy ui`
SQLITE = "sqlite:///"
SCHEMES = {"http", "https", "file", "sqlite", "databricks", "uc", "postgresql", "mysql", "mssql", ""}

# By default, MLflow retries an unreachable server for minutes, and writes to both output streams.
QUIET = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
}


def tracking_uri(home: Path, option: str | None) -> str:
    """The server to use: `given`, or MLFLOW_TRACKING_URI, or the local one in `home`."""
    uri = (option or os.environ.get(URI) or f"{SQLITE}{home.absolute()}/mlflow.db").rstrip("/")
    _check_address(uri)
    path = database(uri)
    return f"{SQLITE}{path.absolute()}" if path and "?" not in uri else uri


def _check_address(uri: str) -> None:
    try:
        scheme, _ = urlsplit(uri).scheme, urlsplit(uri).port
    except ValueError as error:
        raise InputError(f"--tracking-uri or {URI}: this is not an address ({error})") from error
    if scheme.partition("+")[0] not in SCHEMES:
        schemes = ", ".join(sorted(filter(None, SCHEMES)))
        raise InputError(f"--tracking-uri or {URI}: MLflow does not support {scheme}://; it supports {schemes}")


def database(uri: str) -> Path | None:
    """The file of a SQLite URI; None for any other server."""
    return Path(uri.removeprefix(SQLITE).split("?")[0]) if uri.startswith(SQLITE) else None


def public_uri(uri: str) -> str:
    """The URI without user, password and query, which may contain them too."""
    parts = urlsplit(uri)
    if not parts.netloc:
        return uri.split("?")[0]
    return urlunsplit(SplitResult(parts.scheme.lower(), parts.netloc.rpartition("@")[2].lower(), parts.path, "", ""))


def identity(uri: str, home: Path) -> str:
    """The identity of a server in a step's key, independent of the account.

    The database in the home is named without its folder, so that a moved home has the same identity.
    """
    path = database(uri)
    if path and path.parent.resolve() == home.resolve():
        return f"{SQLITE}{path.name}"
    return public_uri(uri).rstrip("/")


def address(identity: str, home: Path) -> str:
    """The URI of a server by its identity, without credentials."""
    path = database(identity)
    return f"{SQLITE}{home.absolute() / path}" if path else identity


def run_page(uri: str, experiment: str, run_id: str) -> str:
    """The address of a run's page, or MLflow's URI of the run if the server has no pages.

    MLflow 3.17 shows first-time visitors its pages for language-model applications, unless the address has a
    workflowType.
    """
    if not uri.startswith(("http://", "https://")):
        return f"runs:/{run_id}"
    return for_people(f"{public_uri(uri)}/#/experiments/{experiment}/runs/{run_id}?workflowType=machine_learning")


def for_people(url: str) -> str:
    """A page's address for browsers: a recorded address may be older than the setting UNDERSTUDY_MLFLOW_UI.

    Raises:
        InputError: the variable is not an address.
    """
    base, (_, is_page, page) = os.environ.get(PAGES, "").rstrip("/"), url.partition("/#/")
    if not base or not is_page:
        return url
    if not base.startswith(("http://", "https://")):
        raise InputError(f"{PAGES}: {base}: give the whole address, such as https://mlflow.example.com")
    return f"{base}/#/{page}"


def silence() -> None:
    """Set the environment variables that MLflow reads on import. By default it sends usage data to its makers."""
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Translate MLflow's exceptions into an error that names the server, without credentials.

    Raises:
        UnderstudyError: MLflow, its connection or its database failed.
    """
    silence()  # here, since MLflow is first imported here
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, RequestException, SQLAlchemyError) as error:
        raise rest.unusable(public_uri(uri), redacted(uri, str(error))) from error


def redacted(uri: str, text: str) -> str:
    """The first line of a message, without the URI's credentials."""
    parts = urlsplit(uri)
    line = (text.strip().splitlines() or [""])[0].replace(uri, public_uri(uri))
    for secret in (parts.netloc.rpartition("@")[0], parts.password, unquote(parts.password or ""), parts.query):
        line = line.replace(secret, "***") if secret else line
    return line[:500]
