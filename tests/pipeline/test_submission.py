"""Submitting to a KFP API server, whose answers here are made of the real client's own types."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import kfp_server_api
import pytest

from pipelines import submission
from pipelines.submission import Server
from understudy.errors import InputError, UnderstudyError
from understudy.recipe import Recipe

IMAGES = "registry.example/understudy:1"
TOKEN = "a-token"


class Kfp(ThreadingHTTPServer):
    """Accepts a pipeline, and plays the states of one run."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.states = ["PENDING", "RUNNING", "SUCCEEDED"]
        self.posted: dict[str, Any] = {}
        self.status = 200

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    server: Kfp

    def answer(self, body: Any) -> None:
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            self.server.status = 401
        text = json.dumps(kfp_server_api.ApiClient().sanitize_for_serialization(body)).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        if "healthz" in self.path:
            self.answer(kfp_server_api.V2beta1GetHealthzResponse(multi_user=False))
        elif "/experiments" in self.path:
            found = kfp_server_api.V2beta1Experiment(experiment_id="e1", display_name="digits")
            self.answer(kfp_server_api.V2beta1ListExperimentsResponse(experiments=[found], total_size=1))
        else:
            state = self.server.states.pop(0)
            error = kfp_server_api.GoogleRpcStatus(message="a task failed") if state == "FAILED" else None
            self.answer(kfp_server_api.V2beta1Run(run_id="r1", state=state, error=error))

    def do_POST(self) -> None:
        self.server.posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(kfp_server_api.V2beta1Run(run_id="r1", experiment_id="e1", state="PENDING"))

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture
def kfp() -> Iterator[Kfp]:
    with Kfp() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "EVERY", 0.01)


def test_a_run_is_made_of_the_compiled_pipeline(kfp: Kfp, recipe: Recipe) -> None:
    server = Server(kfp.address, "team", TOKEN)
    assert submission.submit(server, recipe, IMAGES, None) == "r1"
    assert kfp.posted["experiment_id"] == "e1"
    spec = kfp.posted["pipeline_spec"]
    assert spec["pipeline_spec"]["pipelineInfo"]["name"] == "digits"
    assert "kubernetes" in spec["platform_spec"]["platforms"]
    assert server.page("r1") == f"{kfp.address}/#/runs/details/r1"


@pytest.mark.parametrize(
    ("last", "code", "words"), [("SUCCEEDED", 0, "succeeded"), ("FAILED", 1, "failed: a task failed")]
)
def test_a_run_is_followed_to_its_end(kfp: Kfp, last: str, code: int, words: str) -> None:
    kfp.states = ["PENDING", "PENDING", "RUNNING", last]
    told: list[str] = []
    assert submission.follow(Server(kfp.address, None, TOKEN), "r1", told.append) == code
    assert told == ["pending", "running", words]


def test_a_token_that_is_not_accepted_is_told(kfp: Kfp, recipe: Recipe) -> None:
    with pytest.raises(InputError, match=r"KFP refuses this token \(401\).*KFP_TOKEN"):
        submission.submit(Server(kfp.address, "team", "old"), recipe, IMAGES, None)


def test_a_server_that_fails_is_told(kfp: Kfp, recipe: Recipe) -> None:
    kfp.status = 500
    with pytest.raises(UnderstudyError, match="KFP says 500"):
        submission.submit(Server(kfp.address, "team", TOKEN), recipe, IMAGES, None)


def test_a_server_that_does_not_answer_is_told(recipe: Recipe) -> None:
    with pytest.raises(InputError, match=r"http://127\.0\.0\.1:9: no KFP API server answers here"):
        submission.submit(Server("http://127.0.0.1:9", "team", None), recipe, IMAGES, None)
