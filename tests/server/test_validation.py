"""Requests that MLflow's accounts and its handlers would read differently: a reader used them on objects of others."""

import base64
import json
import secrets
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.registry.submitted import Server
from tests.server.accounts import READER, TRAINER, ask, done


def send(server: Server, method: str, endpoint: str, body: bytes | None, kind: str | None) -> tuple[int, str]:
    """The reader's request, with this body and type of content."""
    request = Request(f"{server.uri}/api/2.0/mlflow/{endpoint}", body, method=method)
    token = base64.b64encode(f"{READER}:password-of-{READER}".encode()).decode()
    request.add_header("Authorization", f"Basic {token}")
    if kind is not None:
        request.add_header("Content-Type", kind)
    try:
        with urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def owned(guarded: Server) -> dict[str, str]:
    """A run and a model of the pipeline's account, and others of the reader's."""
    result = {}
    for account, whose in ((TRAINER, "theirs"), (READER, "mine")):
        name = f"{whose}-{secrets.token_hex(4)}"
        experiment = done(ask(guarded, account, "POST", "experiments/create", name=name))["experiment_id"]
        run = done(ask(guarded, account, "POST", "runs/create", experiment_id=experiment))["run"]["info"]["run_id"]
        done(ask(guarded, account, "POST", "registered-models/create", name=name))
        logged = done(ask(guarded, account, "POST", "logged-models", experiment_id=experiment, name="model"))
        result[f"{whose} run"], result[f"{whose} model"] = run, name
        result[f"{whose} logged"] = logged["model"]["info"]["model_id"]
    return result


@pytest.mark.parametrize("kind", ["text/plain", "application/json", None])
def test_a_query_that_is_allowed_does_not_let_the_body_do_something_else(
    guarded: Server, owned: dict[str, str], kind: str | None
) -> None:
    body = json.dumps({"name": owned["theirs model"]}).encode()
    status, message = send(guarded, "DELETE", f"registered-models/delete?name={owned['mine model']}", body, kind)
    assert (status, "has its parameters in the body" in message) == (400, True)
    done(ask(guarded, TRAINER, "GET", f"registered-models/get?name={owned['theirs model']}"))


@pytest.mark.parametrize("names", [("runId", "run_uuid"), ("run_id", "run_uuid"), ("run_uuid", "runId")])
@pytest.mark.parametrize("endpoint", ["delete", "set-tag", "log-metric", "log-batch", "update"])
def test_a_run_has_one_name_in_a_request(
    guarded: Server, owned: dict[str, str], endpoint: str, names: tuple[str, str]
) -> None:
    sent = {names[0]: owned["theirs run"], names[1]: owned["mine run"]}
    content: dict[str, Any] = {"key": "a", "value": "1"} if endpoint in ("set-tag", "log-metric") else {}
    status, answer = ask(guarded, READER, "POST", f"runs/{endpoint}", **sent, **content)
    assert status == 400, answer
    run = done(ask(guarded, TRAINER, "GET", f"runs/get?run_id={owned['theirs run']}"))["run"]
    assert run["info"]["lifecycle_stage"] == "active"
    assert run["data"].get("metrics") is None


def test_the_path_and_the_body_name_one_model(guarded: Server, owned: dict[str, str]) -> None:
    mine = f"logged-models/{owned['mine logged']}"
    status, message = ask(
        guarded, READER, "PATCH", mine, model_id=owned["theirs logged"], status="LOGGED_MODEL_UPLOAD_FAILED"
    )
    assert (status, "model_id has one value in the path" in message) == (400, True)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"[]", "application/json"),
        (b'"{}"', "application/json"),
        (b"{", "application/json"),
        (b"{}", "text/plain"),
        (b"name=a", "application/x-www-form-urlencoded"),
        (b'{"experimentIds": []}', "application/json"),
    ],
)
def test_a_body_is_a_json_object_with_the_names_of_parameters(guarded: Server, body: bytes, kind: str) -> None:
    status, message = send(guarded, "POST", "experiments/search", body, kind)
    assert (status, "MLflow's client sends no such request" in message) == (400, True)


def test_a_get_is_judged_by_its_query(guarded: Server, owned: dict[str, str]) -> None:
    body = json.dumps({"run_id": owned["theirs run"]}).encode()
    status, message = send(guarded, "GET", f"runs/get?run_id={owned['mine run']}", body, "application/json")
    assert (status, "a GET has no body" in message) == (400, True)
