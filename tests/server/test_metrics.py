"""The server's metrics: their counts, their labels without names, and their address."""

import http.client
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.ranks.faults.stage import wait
from tests.registry.submitted import Server, start_server
from tests.server.accounts import ADMIN, ALIAS, COMMAND, SETTINGS, TRAINER, ask, done, make_accounts
from tests.unit.manifests.promtool import needs_promtool
from understudy.metrics import VARIABLE
from understudy.registry.middleware.allowlist import allowed_routes
from understudy_server.metrics import ROUTES, route


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def metrics_address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def server(metrics_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start_server(
        tmp_path_factory.mktemp("measured"), (*COMMAND, "--workers", "1"), **SETTINGS, **{VARIABLE: metrics_address}
    )
    make_accounts(running, TRAINER)
    yield running
    running.stop()


def scrape(metrics_address: str) -> str:
    with urlopen(f"http://{metrics_address}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def value(metrics_address: str, name: str, **labels: str) -> float:
    samples = [
        sample for family in text_string_to_metric_families(scrape(metrics_address)) for sample in family.samples
    ]
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


def comes(metrics_address: str, name: str, expected: float, **labels: str) -> bool:
    """Whether a value is reached; the server counts a request after its answer."""
    return wait(lambda: value(metrics_address, name, **labels) >= expected, seconds=60, every=0.1)


def test_requests_are_counted_by_their_subject(server: Server, metrics_address: str) -> None:
    labels = {"route": "experiments", "method": "GET", "status": "200"}
    before = value(metrics_address, "understudy_mlflow_requests_total", **labels)
    for _ in range(3):
        done(ask(server, TRAINER, "GET", "experiments/search?max_results=1"))
    assert comes(metrics_address, "understudy_mlflow_requests_total", before + 3, **labels)
    assert value(metrics_address, "understudy_mlflow_requests_total", **labels) == before + 3
    assert comes(metrics_address, "understudy_mlflow_request_duration_seconds_count", 3, route="experiments")
    assert wait(lambda: value(metrics_address, "understudy_mlflow_requests_in_progress") == 0, seconds=60, every=0.1)


def test_a_failed_sign_in_is_counted_and_a_request_without_an_account_is_not_one(
    server: Server, metrics_address: str
) -> None:
    before = value(metrics_address, "understudy_mlflow_sign_in_failures_total")
    assert ask(server, None, "GET", "experiments/search?max_results=1")[0] == 401
    assert value(metrics_address, "understudy_mlflow_sign_in_failures_total") == before
    assert ask(server, "nobody", "GET", "experiments/search?max_results=1")[0] == 401
    assert comes(metrics_address, "understudy_mlflow_sign_in_failures_total", before + 1, scheme="basic")
    assert value(metrics_address, "understudy_mlflow_sign_in_failures_total", scheme="basic") == before + 1


def test_every_refusal_is_counted(server: Server, metrics_address: str) -> None:
    assert ask(server, TRAINER, "POST", "users/create", username="somebody", password="of twelve letters")[0] == 403
    assert comes(metrics_address, "understudy_mlflow_requests_total", 1, route="users", status="403")
    assert ask(server, ADMIN, "GET", "assistant/config", api="ajax-api/3.0")[0] == 404
    assert comes(metrics_address, "understudy_mlflow_requests_total", 1, route="other", status="404")


def test_an_audited_change_is_counted(server: Server, metrics_address: str) -> None:
    done(ask(server, TRAINER, "GET", "users/current"))  # the first sign-in is a line, too
    before = value(metrics_address, "understudy_mlflow_audit_lines_total")
    name = f"counted-{secrets.token_hex(4)}"
    done(ask(server, TRAINER, "POST", "registered-models/create", name=name))
    assert ask(server, TRAINER, "POST", ALIAS, name=name, alias="champion", version="1")[0] == 403
    assert value(metrics_address, "understudy_mlflow_audit_lines_total") == before + 1
    assert name not in scrape(metrics_address), "the numbers name nobody's model"


def test_a_client_cannot_create_series(server: Server, metrics_address: str) -> None:
    parts = urlsplit(server.uri)
    for number in range(5):
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
        connection.request(f"ODD{number}", f"/odd/{number}", headers={"Authorization": f"Odd{number} x"})
        assert connection.getresponse().status >= 400
        connection.close()
    text = scrape(metrics_address)
    assert "ODD" not in text.upper()
    assert 'route="other",method="other"' in text.replace(
        'method="other",route="other"', 'route="other",method="other"'
    )


def test_there_is_nothing_of_it_where_people_come(server: Server) -> None:
    for account in (None, ADMIN):
        status, message = ask(server, account, "GET", "metrics", api="..")
        assert status == 404
        assert "understudy_mlflow_requests" not in message


def test_without_the_variable_nothing_listens(guarded: Server) -> None:
    with pytest.raises(URLError):
        scrape(f"127.0.0.1:{free_port()}")
    assert ask(guarded, TRAINER, "GET", "experiments/search?max_results=1")[0] == 200


def test_a_second_worker_would_count_by_itself_and_is_refused(tmp_path: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        code = (
            f"import os; os.environ[{VARIABLE!r}] = {address!r}\n"
            "from fastapi import FastAPI\n"
            "from understudy_server.metrics import with_metrics\n"
            "with_metrics(FastAPI())"
        )
        command = [sys.executable, "-W", "ignore", "-c", code]
        outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "this address is in use; a server with metrics needs --workers=1" in outcome.stderr
    assert outcome.returncode == 1


def test_every_allowed_route_has_a_kind() -> None:
    assert {"runs", "experiments", "registered-models", "model-versions", "users", "roles", "audit"} <= ROUTES
    for allowed in allowed_routes():
        path = allowed.path.pattern.replace("[^/]+", "x").replace("(?s:.+)", "x/y").replace("\\", "")
        assert route(path) != "other", path
    assert route("/api/2.0/mlflow/odd/get") == "other"
    assert (route("/"), route("/static-files/x.js"), route("/health")) == ("page", "page", "health")


@needs_promtool
def test_names_and_units_follow_prometheus_conventions(server: Server, metrics_address: str) -> None:
    done(ask(server, TRAINER, "GET", "experiments/search?max_results=1"))
    done_ = subprocess.run(
        ["promtool", "check", "metrics"], input=scrape(metrics_address), text=True, capture_output=True, check=False
    )
    assert (done_.returncode, done_.stdout, done_.stderr) == (0, "", "")
