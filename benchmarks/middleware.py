"""The cost of the middleware before MLflow: a server with it and one without answer the same requests in turns.

python -m benchmarks.middleware [--rounds 5] [--metrics 10000] [--versions 1000]
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from socket import socket
from typing import Any
from unittest.mock import patch

from fastapi import FastAPI

PIPELINE, PASSWORD = "pipeline", "password-of-pipeline"
ACCOUNTS = f"""
from understudy_server.app import auth, create_accounts
from understudy_server.ownership import assign
create_accounts()
auth.store.create_user({PIPELINE!r}, {PASSWORD!r})
assign("team", "registered_model", "model")
"""
AT_ONCE = 100  # metrics in a request, as a training's points are logged


def bare() -> FastAPI:
    """The app without the middleware."""
    from understudy_server import app

    with patch.object(app, "with_middleware", lambda built_app: built_app):
        return app.create_app()


@contextmanager
def server(factory: str, folder: Path, versions: int) -> Iterator["Client"]:
    """A server of one worker on a database of its own, which has a model with so many versions."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder}/server.db",
        "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{folder}/server.db",
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(folder / "files"),
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        "_MLFLOW_SGI_NAME": "uvicorn",
        "MLFLOW_AUTH_ADMIN_PASSWORD": "password-of-admin",
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "any text",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "UNDERSTUDY_ACCOUNTS": json.dumps({"teams": {"team": {"writers": [PIPELINE]}}}),
    }
    make_versions(folder, versions)
    subprocess.run([sys.executable, "-W", "ignore", "-c", ACCOUNTS], env=environment, check=True, capture_output=True)
    command = [sys.executable, "-W", "ignore", "-m", "uvicorn", "--factory", factory, "--port", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield Client(port)
        finally:
            process.terminate()
            process.wait()


class Client:
    """One connection to a server, kept open, with the pipeline's account."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        token = b64encode(f"{PIPELINE}:{PASSWORD}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """The server's answer; the request is repeated until the server is up."""
        content = json.dumps(body) if body else None
        deadline = time.monotonic() + 120
        while True:
            try:
                self._connection.request(method, f"/api/2.0/mlflow/{path}", content, self._headers)
                answer = self._connection.getresponse()
                break
            except ConnectionError:
                self._connection.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        result: dict[str, Any] = json.loads(answer.read())
        assert answer.status == 200, result
        return result


def log_metrics(client: Client, count: int, value: float = 1.0) -> str:
    """The id of a new run with so many metrics of one value, AT_ONCE in a request."""
    experiment = client.ask("POST", "experiments/create", name=secrets.token_hex(4))["experiment_id"]
    run = client.ask("POST", "runs/create", experiment_id=experiment)["run"]["info"]["run_id"]
    for first in range(0, count, AT_ONCE):
        points = [{"key": "loss", "value": value, "timestamp": 0, "step": first + step} for step in range(AT_ONCE)]
        client.ask("POST", "runs/log-batch", run_id=run, metrics=points)
    return str(run)


def make_versions(folder: Path, count: int) -> None:
    """A model with so many versions, written into the server's database: over HTTP a thousand take ten minutes."""
    from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(f"sqlite:///{folder}/server.db")
    store.create_registered_model("model")
    for _ in range(count):
        store.create_model_version("model", "mlflow-artifacts:/0/model")


def list_versions(client: Client, count: int) -> None:
    """All versions, a hundred in a page."""
    listed, token = 0, ""
    while True:
        path = f"model-versions/search?max_results=100&page_token={token}"
        page = client.ask("GET", path)
        listed += len(page["model_versions"])
        token = page.get("next_page_token", "")
        if not token:
            break
    assert listed == count


def seconds(work: Callable[[Client, int], object], client: Client, count: int) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work(client, count)
    return time.perf_counter() - began


def main() -> None:
    """Print seconds of both, and the ratio: minimum and median over the rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--metrics", type=int, default=10_000)
    parser.add_argument("--versions", type=int, default=1_000)
    options = parser.parse_args()
    works: dict[str, tuple[Callable[[Client, int], object], int]]
    works = {f"log {options.metrics:,} metrics": (log_metrics, options.metrics)}
    works[f"list {options.versions:,} versions"] = (list_versions, options.versions)
    with tempfile.TemporaryDirectory() as guarded_folder, tempfile.TemporaryDirectory() as bare_folder:
        guarded = server("understudy_server.app:create_app", Path(guarded_folder), options.versions)
        with guarded as with_it, server("benchmarks.middleware:bare", Path(bare_folder), options.versions) as without:
            for client in (with_it, without):
                log_metrics(client, AT_ONCE)
            print("| work | s with the middleware, min / median | s without | ratio, min / median |\n|---|---|---|---|")
            for name, (work, count) in works.items():
                times = [(seconds(work, with_it, count), seconds(work, without, count)) for _ in range(options.rounds)]
                ours, theirs = zip(*times, strict=True)
                ratios = [a / b for a, b in times]
                print(
                    f"| {name} | {min(ours):.2f} / {statistics.median(ours):.2f} "
                    f"| {min(theirs):.2f} / {statistics.median(theirs):.2f} "
                    f"| {min(ours) / min(theirs):.3f} / {statistics.median(ratios):.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
