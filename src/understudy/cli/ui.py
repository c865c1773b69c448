"""understudy ui: MLflow's pages on the local database, for this machine only, until Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import IO, Annotated, Any, NoReturn

import typer

from understudy.cli.settings import Settings
from understudy.errors import InputError, UnderstudyError

HOST = "127.0.0.1"
APP = "understudy-pages"  # registry/ui.py, among pyproject.toml's entry points
PATIENCE = 10.0  # seconds for the server to end by itself

# Neither is needed for viewing pages, and each starts more processes or connections.
QUIET = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}


def ui(
    ctx: typer.Context, port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 5000
) -> None:
    """Start the MLflow UI on the local database; Ctrl-C ends it."""
    import secrets
    import tempfile

    from understudy.registry.server import UI_TOKEN

    settings: Settings = ctx.obj
    command = _command(settings.tracking_uri, port)
    _check_free(port)
    token = secrets.token_urlsafe(16)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with tempfile.TemporaryFile() as log:
        output = None if settings.verbose else log
        # In a new session, Ctrl-C reaches only this process, which then ends the server and all its workers.
        server = subprocess.Popen(
            command, env={**os.environ, **QUIET, UI_TOKEN: token}, stdout=output, stderr=output, start_new_session=True
        )
        try:
            _announce(server, port, token, settings.quiet)
            server.wait()
        except KeyboardInterrupt:
            return
        finally:
            _end(server)
        raise UnderstudyError(f"MLflow's server ended with code {server.returncode}\n{_tail(log)}".rstrip())


def _command(uri: str, port: int) -> list[str]:
    from understudy.registry.client import server_at
    from understudy.registry.relocation import location_beside
    from understudy.registry.server import database, public_uri

    path = database(uri)
    if path is None:
        raise InputError(f"{public_uri(uri)}: this server has its own pages; open it in a browser")
    if not path.exists():
        raise InputError(
            f"{path}: nothing was recorded yet; understudy run recipes/digits.yaml does, --home points at it"
        )
    server_at(uri).check()
    location = ["--backend-store-uri", uri, "--default-artifact-root", location_beside(path)]
    server = [sys.executable, "-m", "mlflow", "server", "--app-name", APP, "--workers", "1"]
    return [*server, *location, "--host", HOST, "--port", str(port)]


def _check_free(port: int) -> None:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError as error:
            raise InputError(f"port {port} needs root's rights; take another one: understudy ui --port 5001") from error
        except OSError as error:
            raise InputError(
                f"port {port} is taken; take another one: understudy ui --port {port % 65535 + 1}"
            ) from error


def _announce(server: "subprocess.Popen[bytes]", port: int, token: str, quiet: bool) -> None:
    from urllib.request import urlopen

    while server.poll() is None:
        try:
            urlopen(f"http://{HOST}:{port}/health", timeout=1).close()
        except OSError:
            time.sleep(0.2)
            continue
        if not quiet:
            print(_addresses(port, token), flush=True)
        return


def _addresses(port: int, token: str) -> str:
    from understudy.registry.latest import latest_page

    address = f"MLflow's pages, until Ctrl-C: http://{HOST}:{port}/?token={token}"
    try:
        page = latest_page(f"http://understudy:{token}@{HOST}:{port}")
    except UnderstudyError:  # the pages work without it
        return address
    return f"{address}\nthe latest run: {page.replace('/#', f'/?token={token}#')}" if page else address


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _end(server: "subprocess.Popen[bytes]") -> None:
    """End the server's whole session."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
            server.wait(PATIENCE)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _tail(log: IO[Any]) -> str:
    log.seek(0)
    return b"\n".join(log.read().splitlines()[-5:]).decode(errors="replace")
