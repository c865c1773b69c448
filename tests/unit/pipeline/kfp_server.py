"""A KFP API server for tests, whose answers are made of the real client's own types."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import kfp_server_api

TOKEN = "a-token"


class Kfp(ThreadingHTTPServer):
    """Accepts a pipeline, and plays the states of one run."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.states = ["PENDING", "RUNNING", "SUCCEEDED"]
        self.posted: dict[str, Any] = {}
        self.tasks: list[kfp_server_api.V2beta1PipelineTaskDetail] = []
        self.status = 200
        self.token = TOKEN
        self.version: dict[str, Any] = {"tag_name": "2.17.0"}
        self.users: set[str | None] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


def task(number: int, name: str, state: str, error: str | None = None, children: tuple[int, ...] = ()) -> Any:
    """A node of a run, as the API tells it."""
    return kfp_server_api.V2beta1PipelineTaskDetail(
        run_id="r1",
        task_id=str(number),
        display_name=name,
        state=state,
        error=kfp_server_api.GoogleRpcStatus(message=error) if error else None,
        child_tasks=[kfp_server_api.PipelineTaskDetailChildTask(task_id=str(child)) for child in children],
    )


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
            found = kfp_server_api.V2beta1Experiment(experiment_id="e1", display_name="digits")
            self.answer(kfp_server_api.V2beta1ListExperimentsResponse(experiments=[found], total_size=1))
        else:
            state = self.server.states.pop(0)
            error = kfp_server_api.GoogleRpcStatus(message="a task failed") if state == "FAILED" else None
            details = kfp_server_api.V2beta1RunDetails(task_details=self.server.tasks)
            run = kfp_server_api.V2beta1Run(run_id="r1", state=state, error=error, run_details=details)
            self.answer(run)

    def do_POST(self) -> None:
        self.server.users.add(self.headers.get("kubeflow-userid"))
        self.server.posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(kfp_server_api.V2beta1Run(run_id="r1", experiment_id="e1", state="PENDING"))

    def log_message(self, *args: Any) -> None:
        return


@contextmanager
def serving() -> Iterator[Kfp]:
    """The server, in a thread of its own."""
    with Kfp() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
