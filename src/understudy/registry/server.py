"""Where the tracking server is. Without one it is a SQLite file in understudy's home, with the artifacts beside it.

A URI may hold a user and a password. They go to MLflow through its environment variables and stand in no log, tag,
file or message: everything but `connect` and `rest` sees `public_uri`.
"""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from understudy.errors import InputError, disk_errors
from understudy.registry import rest

if TYPE_CHECKING:
    from mlflow import MlflowClient

URI = "MLFLOW_TRACKING_URI"
SQLITE = "sqlite:///"
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
SCHEMES = {"http", "https", "file", "sqlite", "databricks", "uc", *PORTS, ""}
SECONDS = 5.0

# MLflow would send usage data to its makers, try an unreachable server for minutes, and write to both output streams.
QUIET = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
}


def tracking_uri(home: Path, given: str | None) -> str:
    """The server to use: the one given, or MLFLOW_TRACKING_URI, or the local one in `home`."""
    uri = (given or os.environ.get(URI) or f"{SQLITE}{home.absolute()}/mlflow.db").rstrip("/")
    _check_address(uri)
    path = database(uri)
    return f"{SQLITE}{path.absolute()}" if path and "?" not in uri else uri


def _check_address(uri: str) -> None:
    try:
        scheme, _ = urlsplit(uri).scheme, urlsplit(uri).port
    except ValueError as error:
        raise InputError(f"--tracking-uri or {URI}: this is no address ({error})") from error
    if scheme.partition("+")[0] not in SCHEMES:
        known = ", ".join(sorted(filter(None, SCHEMES)))
        raise InputError(f"--tracking-uri or {URI}: MLflow knows no {scheme}://; it knows {known}")


def database(uri: str) -> Path | None:
    """The file of a SQLite URI; None for any other server."""
    return Path(uri.removeprefix(SQLITE).split("?")[0]) if uri.startswith(SQLITE) else None


def public_uri(uri: str) -> str:
    """The URI without user and password, and without a query, which may hold them too."""
    parts = urlsplit(uri)
    if not parts.netloc:
        return uri.split("?")[0]
    return urlunsplit(SplitResult(parts.scheme.lower(), parts.netloc.rpartition("@")[2].lower(), parts.path, "", ""))


def identity(uri: str) -> str:
    """What tells one server from another in a step's key, whoever asks it."""
    return public_uri(uri).rstrip("/")


def page(uri: str, path: str) -> str | None:
    """The address of a page of the server's UI; None when the server has none of its own."""
    return f"{public_uri(uri)}/#/{path}" if uri.startswith("http") else None


def reachable(uri: str) -> None:
    """Find out within seconds whether the server can be used, without importing MLflow.

    Raises:
        UnderstudyError: it does not answer, refuses the credentials, or is no MLflow server.
        InputError: the local database cannot be written.
    """
    path, parts = database(uri), urlsplit(uri)
    if path:
        _writable(path)
    elif rest.is_spoken_by(uri):
        rest.get(uri, "experiments/search", max_results="1")
    elif parts.hostname and (port := parts.port or PORTS.get(parts.scheme.split("+")[0])):
        try:
            socket.create_connection((parts.hostname, port), timeout=SECONDS).close()
        except OSError as error:
            raise rest.silent(public_uri(uri), str(error)) from error


def _writable(path: Path) -> None:
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    target = path if path.exists() else path.parent
    if not os.access(target, os.W_OK):
        raise InputError(f"{target}: cannot write MLflow's database here; use --home or --tracking-uri")


def connect(uri: str) -> "MlflowClient":
    """MLflow's client of a server. A local database is made where there is none.

    Raises:
        UnderstudyError: the server does not answer.
    """
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    bare, before = _without_credentials(uri), os.environ.get(URI)
    reachable(uri)
    with translated(uri):
        import mlflow

        path = database(uri)
        if path and not path.exists():
            _create(path)
        # Parts of MLflow ask its global setting, which also writes the variable that a later run here would read.
        mlflow.set_tracking_uri(bare)
        if before is None:
            os.environ.pop(URI, None)
        else:
            os.environ[URI] = before
        return mlflow.MlflowClient(bare)


def _without_credentials(uri: str) -> str:
    """What MLflow is given as the server's address: it puts that into error messages and tags."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return uri
    os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username or "")
    os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
    return public_uri(uri)


def _create(path: Path) -> None:
    """Make the local database aside and link it into place: of two processes one wins, and a killed one leaves none."""
    from mlflow import MlflowClient

    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with disk_errors(path):
        try:
            MlflowClient(f"{SQLITE}{aside}").search_experiments(max_results=1)
            os.link(aside, path)
        except FileExistsError:
            pass
        finally:
            for left in aside.parent.glob(f"{aside.name}*"):
                left.unlink()


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Turn what MLflow raises into one message that names the server, without credentials.

    Raises:
        UnderstudyError: MLflow, its connection or its database failed.
    """
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, RequestException, SQLAlchemyError) as error:
        raise rest.silent(public_uri(uri), redacted(uri, str(error))) from error


def redacted(uri: str, text: str) -> str:
    """The first line of a message, with the URI's credentials blotted out."""
    parts = urlsplit(uri)
    line = (text.strip().splitlines() or [""])[0].replace(uri, public_uri(uri))
    for secret in (parts.netloc.rpartition("@")[0], parts.password, unquote(parts.password or ""), parts.query):
        line = line.replace(secret, "***") if secret else line
    return line[:500]


def artifacts(uri: str) -> str | None:
    """Where a local server's artifacts lie; None where the server decides."""
    path = database(uri)
    return path.absolute().with_name("mlartifacts").as_uri() if path else None
