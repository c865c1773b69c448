"""A KFP API server for tests. Its answers about runs were recorded from a real 2.17.0 (recorded/README.md)."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kfp_server_api

TOKEN = "a-token"
RECORDED = Path(__file__).parent / "recorded"


class Kfp(ThreadingHTTPServer):
    """Accepts a pipeline, and plays the states of one run."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.states = ["PENDING", "RUNNING", "SUCCEEDED"]
        self.posted: dict[str, Any] = {}
        self.recorded = "wrong-override"
        self.status = 200
        self.token = TOKEN
        self.version: dict[str, Any] = {"tag_name": "2.17.0"}
        self.users: set[str | None] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    server: Kfp

    def answer(self, body: Any) -> None:
        refused = self.headers.get("authorization") != f"Bearer {self.server.token}"
        text = json.dumps(kfp_server_api.ApiClient().sanitize_for_serialization(body)).encode()
        self.send_response(401 if refused else self.server.status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self.server.users.add(self.headers.get("kubeflow-userid"))
        if self.path == "/apis/v1beta1/healthz":
            self.answer(self.server.version)
        elif "healthz" in self.path:
            self.answer(kfp_server_api.V2beta1GetHealthzResponse(multi_user=False))
        elif "/experiments" in self.path:
            experiment = kfp_server_api.V2beta1Experiment(experiment_id="e1", display_name="digits")
            self.answer(kfp_server_api.V2beta1ListExperimentsResponse(experiments=[experiment], total_size=1))
        elif self.path.startswith("/apis/v1beta1/runs/"):
            self.answer(recorded(self.server.recorded, "v1beta1"))
        else:
            state = self.server.states.pop(0)
            run = recorded(self.server.recorded, "v2beta1")
            self.answer({**run, "state": state} if state else {name: run[name] for name in run if name != "state"})

    def do_POST(self) -> None:
        self.server.users.add(self.headers.get("kubeflow-userid"))
        self.server.posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(kfp_server_api.V2beta1Run(run_id="r1", experiment_id="e1", state="PENDING"))

    def log_message(self, *args: Any) -> None:
        return


def recorded(name: str, version: str) -> dict[str, Any]:
    """The real server's answer about a run, in one version of its API."""
    return dict(json.loads((RECORDED / f"{name}.{version}.json").read_text()))


@contextmanager
def serving() -> Iterator[Kfp]:
    """The server, in a thread of its own."""
    with Kfp() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
