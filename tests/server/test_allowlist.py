"""The allowlist, compared with every route that the installed MLflow has."""

import http.client
import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.registry.submitted import Server
from tests.server.accounts import ADMIN, READER, REVIEWER, SETTINGS, TRAINER, ask
from understudy.registry.middleware.allowlist import FIXED_RESPONSES, allowed_routes

ASSISTANT = "/ajax-api/3.0/mlflow/assistant/config"
BOTH = r"/(ajax-)?api"
# Routes that are not served, and why. A route that is neither here nor in the allowlist is new: decide about it.
CLOSED = {
    rf"{BOTH}/3.0/mlflow/assistant/": "runs commands on the server",
    rf"/gateway/|{BOTH}/3.0/mlflow/gateway/|/ajax-api/2.0/mlflow/gateway-proxy": "asks others' models, with keys",
    "/ajax-api/2.0/mlflow/runs/create-promptlab-run|/ajax-api/2.0/mlflow/upload-artifact": "is the gateway's workbench",
    rf"{BOTH}/3.0/mlflow/mcp-servers": "registers tools of language models",
    rf"/ajax-api/3.0/jobs/|{BOTH}/3.0/mlflow/(jobs|prompt-optimization)/": "starts processes on the server",
    r"/v1/traces|/ajax-api/3.0/mlflow/ui-telemetry": "is telemetry",
    rf"{BOTH}/[23].0/mlflow/(traces|unified-traces|get-online-trace-details|get-trace-artifact)": "is telemetry",
    rf"{BOTH}/3.0/mlflow/(datasets|scorers?|issues|label-schemas|review-queues|demo|genai)(/|$)": "judges agents",
    rf"{BOTH}/3.0/mlflow/workspaces": "is off: a team has experiments and models of its own",
    rf"{BOTH}/3.0/mlflow/server-info": "tells the server's version and platform",
    rf"DELETE {BOTH}/2.0/mlflow-artifacts/": "would remove files of a version",
    rf"{BOTH}/2.0/mlflow/artifacts/presigned-upload-url": "lets who asks before a promotion write after it",
    "/build/": "has the files of /static-files/ a second time",
    rf"{BOTH}/2.0mlflow/experiments/search-datasets": "is MLflow's slip of the pen",
}


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Methods and examples of paths of all that the server's app has, without the methods that every route has."""
    folder = tmp_path_factory.mktemp("routes")
    environment = {
        **os.environ,
        **SETTINGS,
        "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder}/server.db",
        "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{folder}/server.db",  # as `mlflow server` sets it, and the next
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SGI_NAME": "uvicorn",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    command = [sys.executable, "-W", "ignore", "-m", "tests.server.routes"]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    pairs = [(method, path) for method, _, path in (line.partition(" ") for line in output.splitlines())]
    assert len(pairs) > 400
    return [(method, example(path)) for method, path in pairs if method not in ("HEAD", "OPTIONS")]


def example(path: str) -> str:
    """A path that a route answers to."""
    return re.sub(r"<[^>]+>|\{[^}]+\}", "x", path)


def passes(method: str, path: str) -> bool:
    return any(method in methods and pattern.fullmatch(path) for pattern, methods in allowed_routes())


def reason(method: str, path: str) -> str:
    """Why a request is closed."""
    forms = (path, f"{method} {path}")
    return next((why for pattern, why in CLOSED.items() if any(re.match(pattern, form) for form in forms)), "")


def test_every_route_is_allowed_or_closed(routes: list[tuple[str, str]]) -> None:
    assert [route for route in routes if not passes(*route) and not reason(*route)] == []


def test_no_route_is_both_served_and_closed(routes: list[tuple[str, str]]) -> None:
    assert [route for route in routes if passes(*route) and reason(*route)] == []


def test_nothing_is_served_that_mlflow_has_not(routes: list[tuple[str, str]]) -> None:
    for pattern, methods in allowed_routes():
        assert methods <= {method for method, path in routes if pattern.fullmatch(path)}, pattern.pattern


# A real server


def status(server: Server, method: str, path: str, account: str = ADMIN) -> tuple[int, bytes]:
    """The answer to a path that is sent as it is written."""
    connection = http.client.HTTPConnection(urlsplit(server.uri).netloc, timeout=30)
    token = b64encode(f"{account}:password-of-{account}".encode()).decode()
    try:
        connection.request(method, path, b"{}", {"Authorization": f"Basic {token}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_closed_routes_are_closed_to_an_admin_too(guarded: Server, routes: list[tuple[str, str]]) -> None:
    closed = [route for route in routes if reason(*route)]
    assert len(closed) > 150
    for method, path in closed:
        if method == "GET" and path in FIXED_RESPONSES:
            continue
        code, message = status(guarded, method, path)
        assert (code, b"ENDPOINT_NOT_FOUND" in message) == (404, True), (method, path)


@pytest.mark.parametrize("account", [READER, TRAINER, REVIEWER, ADMIN])
@pytest.mark.parametrize(
    "path",
    [
        ASSISTANT,
        ASSISTANT + "/",
        ASSISTANT + "?x=/health",
        "/" + ASSISTANT,
        ASSISTANT.replace("/mlflow", "//mlflow"),
        ASSISTANT.replace("a", "%61"),
        ASSISTANT.replace("/assistant", "%2fassistant"),
        "/static-files/.." + ASSISTANT,
        "/static-files/..%2f.." + ASSISTANT.replace("/", "%2f"),
        "/api/2.0/mlflow-artifacts/artifacts/../../../.." + ASSISTANT,
        ASSISTANT + "%0a",
    ],
)
def test_nobody_reaches_the_assistant(guarded: Server, account: str, path: str) -> None:
    for method in ("GET", "PUT"):
        code, message = status(guarded, method, path, account)
        assert code in (400, 401, 403, 404, 405), message
        assert b"providers" not in message
        assert b"projects" not in message


@pytest.mark.parametrize("path", FIXED_RESPONSES)
def test_first_requests_of_the_pages_are_answered_without_mlflow(guarded: Server, path: str) -> None:
    code, message = status(guarded, "GET", f"{path}?gateway_path=api/2.0/endpoints/", READER)
    assert (code, json.loads(message)) == (200, FIXED_RESPONSES[path])
    assert status(guarded, "POST", path, READER)[0] == 404


def test_webhooks_are_for_admins(guarded: Server) -> None:
    assert ask(guarded, ADMIN, "GET", "webhooks")[0] == 200
    for account in (READER, TRAINER, REVIEWER):
        for api in ("api/2.0", "ajax-api/2.0"):
            assert ask(guarded, account, "GET", "webhooks", api)[0] == 403
            assert ask(guarded, account, "POST", "webhooks", api, name="a", url="https://b")[0] == 403


def test_a_page_and_its_files_are_served(guarded: Server) -> None:
    code, page = status(guarded, "GET", "/")
    assert code == 200
    script = re.search(rb'src="(static-files/[^"]+\.js)"', page)
    assert script
    assert status(guarded, "GET", f"/{script[1].decode()}")[0] == 200


def test_the_server_does_not_start_without_a_front(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/server.db"
    root = {"_MLFLOW_SERVER_FILE_STORE": database, "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/"}
    environment = {**os.environ, **SETTINGS, **root, "MLFLOW_BACKEND_STORE_URI": database}
    code = "from understudy_server import app; app.create_accounts(); app.create_app()"
    command = [sys.executable, "-W", "ignore", "-c", code]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert "this server runs under uvicorn only" in outcome.stderr
