"""Who may do what on the server that the manifests deploy: a real one, with its accounts, asked as each of them."""

import ast
import base64
import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.registry.submitted import Pipeline, Server, start_server
from understudy.errors import UnderstudyError
from understudy.registry.champion import champion
from understudy.registry.client import server_at
from understudy.registry.register import is_registered

COMMAND = ("understudy.registry.server_app.app",)
ADMIN, TRAINER, REVIEWER, READER = "admin", "pipeline", "rita", "eve"
SETTINGS = {
    "MLFLOW_AUTH_ADMIN_PASSWORD": f"password-of-{ADMIN}",
    "MLFLOW_FLASK_SERVER_SECRET_KEY": "any text",
    "UNDERSTUDY_PIPELINE_USERNAME": TRAINER,
    "UNDERSTUDY_PIPELINE_PASSWORD": f"password-of-{TRAINER}",
    "UNDERSTUDY_REVIEWERS": f" somebody, {REVIEWER}",
}
APIS = ("api/2.0", "ajax-api/2.0")  # for programs, and for the pages
ALIAS = "registered-models/alias"


def ask(
    server: Server, account: str | None, method: str, endpoint: str, api: str = APIS[0], **body: str
) -> tuple[int, Any]:
    """The status and the answer to an account, whose password is what all of them have here."""
    request = Request(f"{server.uri}/{api}/mlflow/{endpoint}", method=method)
    request.add_header("Content-Type", "application/json")
    if account:
        token = base64.b64encode(f"{account}:password-of-{account}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    try:
        with urlopen(request, json.dumps(body).encode() if body else None, timeout=30) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            said = error.read().decode()
            return error.code, json.loads(said)["message"] if said.startswith("{") else said


def done(answer: tuple[int, Any]) -> Any:
    assert answer[0] == 200, answer
    return answer[1]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server with an admin, the pipeline's account, a reviewer, and one who may only read."""
    server = start_server(tmp_path_factory.mktemp("guarded"), COMMAND, **SETTINGS)
    for account in (REVIEWER, READER):
        done(ask(server, ADMIN, "POST", "users/create", username=account, password=f"password-of-{account}"))
    yield server
    server.stop()


@pytest.fixture
def model(guarded: Server) -> str:
    """A model that the pipeline's account made: version 1 is the champion, version 2 the challenger."""
    name = f"model-{secrets.token_hex(4)}"
    done(ask(guarded, TRAINER, "POST", "registered-models/create", name=name))
    for _ in range(2):
        done(ask(guarded, TRAINER, "POST", "model-versions/create", name=name, source="s3://bucket/model"))
    done(ask(guarded, TRAINER, "POST", ALIAS, name=name, alias="challenger", version="2"))
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=name, alias="champion", version="1"))
    return name


def standing(server: Server, name: str) -> dict[str, str]:
    found = done(ask(server, READER, "GET", f"registered-models/get?name={name}"))["registered_model"]
    return {alias["alias"]: alias["version"] for alias in found.get("aliases", ())}


def with_account(server: Server, account: str, password: str | None = None) -> str:
    return server.uri.replace("http://", f"http://{account}:{password or f'password-of-{account}'}@")


def test_the_pipeline_registers_its_student_and_cannot_promote_it(
    guarded: Server, make_pipeline: Callable[..., Pipeline]
) -> None:
    uri = with_account(guarded, TRAINER)
    assert champion(uri, "digits") is None
    pipeline = make_pipeline(uri)
    made = pipeline.register()
    assert server_at(uri).aliases("digits") == {"challenger": made.version}
    status, said = ask(guarded, TRAINER, "POST", ALIAS, name="digits", alias="champion", version="1")
    assert status == 403
    assert said.startswith("pipeline may not move the alias champion of digits")
    assert REVIEWER in said
    done(ask(guarded, REVIEWER, "POST", ALIAS, name="digits", alias="champion", version="1"))
    found = champion(with_account(guarded, READER), "digits")
    assert found is not None
    assert is_registered(uri, made, found.digest)
    again = pipeline.register(run=pipeline.new_run(), weights=b"better")
    assert server_at(uri).aliases("digits") == {"challenger": again.version, "champion": made.version}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("method", "endpoint", "body"),
    [
        ("POST", ALIAS, {"alias": "champion", "version": "2"}),
        ("POST", ALIAS, {"alias": "Champion", "version": "2"}),
        ("DELETE", ALIAS, {"alias": "champion"}),
        ("DELETE", "model-versions/delete", {"version": "1"}),
        ("DELETE", "model-versions/delete", {"version": "01"}),
        ("DELETE", "registered-models/delete", {}),
        ("POST", "registered-models/rename", {"new_name": "another"}),
        ("POST", "registered-models/rename", {"newName": "another"}),
    ],
    ids=["moved", "spelled", "removed", "version", "version-spelled", "model", "renamed", "renamed-spelled"],
)
@pytest.mark.parametrize("account", [TRAINER, READER])
def test_no_request_of_others_moves_or_removes_the_champion(
    guarded: Server, model: str, account: str, method: str, endpoint: str, body: dict[str, str], api: str
) -> None:
    status, said = ask(guarded, account, method, endpoint, api, name=model, **body)
    assert status == 403
    assert said.startswith(f"{account} may not ")
    assert "champion" in said
    assert said.endswith("reviewers are somebody, rita (UNDERSTUDY_REVIEWERS of the server).")
    assert standing(guarded, model) == {"champion": "1", "challenger": "2"}


def test_stages_are_not_aliases(guarded: Server, model: str) -> None:
    stage = {"version": "2", "stage": "Production", "archive_existing_versions": "true"}
    ask(guarded, TRAINER, "POST", "model-versions/transition-stage", name=model, **stage)
    assert standing(guarded, model) == {"champion": "1", "challenger": "2"}


def test_the_pipeline_does_as_before_with_what_is_not_the_champion(guarded: Server, model: str) -> None:
    done(ask(guarded, TRAINER, "DELETE", ALIAS, name=model, alias="challenger"))
    done(ask(guarded, TRAINER, "DELETE", "model-versions/delete", name=model, version="2"))
    assert standing(guarded, model) == {"champion": "1"}
    other = f"{model} without champion"
    done(ask(guarded, TRAINER, "POST", "registered-models/create", name=other))
    done(ask(guarded, TRAINER, "POST", "registered-models/rename", name=other, new_name=f"{other}, renamed"))
    done(ask(guarded, TRAINER, "DELETE", "registered-models/delete", name=f"{other}, renamed"))


def test_a_reviewer_moves_and_removes_the_champion_and_edits_nothing_else(guarded: Server, model: str) -> None:
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=model, alias="champion", version="2"))
    assert standing(guarded, model)["champion"] == "2"
    done(ask(guarded, REVIEWER, "DELETE", ALIAS, name=model, alias="champion"))
    assert standing(guarded, model) == {"challenger": "2"}
    for method, endpoint, body in (
        ("POST", ALIAS, {"alias": "challenger", "version": "1"}),
        ("POST", "registered-models/set-tag", {"key": "a", "value": "b"}),
        ("DELETE", "model-versions/delete", {"version": "1"}),
        ("DELETE", "registered-models/delete", {}),
    ):
        assert ask(guarded, REVIEWER, method, endpoint, name=model, **body) == (403, "Permission denied")


def test_an_admin_may_everything(guarded: Server, model: str) -> None:
    done(ask(guarded, ADMIN, "POST", ALIAS, name=model, alias="champion", version="2"))
    done(ask(guarded, ADMIN, "DELETE", "registered-models/delete", name=model))


def test_what_is_not_there_is_answered_as_before(guarded: Server) -> None:
    for endpoint in ("registered-models/delete", "model-versions/delete"):
        status, said = ask(guarded, TRAINER, "DELETE", endpoint, name="unheard of", version="1")
        assert (status, "champion" in said) == (403, False)


def test_without_an_account_there_is_the_health_check_and_nothing_else(guarded: Server) -> None:
    assert ask(guarded, None, "POST", ALIAS, name="digits", alias="champion", version="1")[0] == 401
    assert ask(guarded, "nobody", "GET", "experiments/search?max_results=1")[0] == 401
    for uri in (guarded.uri, with_account(guarded, TRAINER, "wrong")):
        with pytest.raises(UnderstudyError, match=r"refuses access .401.; set MLFLOW_TRACKING_USERNAME"):
            server_at(uri).check()
    probe = Request(f"{guarded.uri}/health", headers={"Host": "10.0.0.7:5000"})  # the kubelet asks by address
    with urlopen(probe, timeout=30) as response:
        assert response.status == 200


def test_only_an_admin_makes_accounts(guarded: Server) -> None:
    for account in (TRAINER, REVIEWER):
        made = ask(guarded, account, "POST", "users/create", username="somebody", password="of twelve letters")
        assert made[0] == 403
        promoted = ask(guarded, account, "PATCH", "users/update-admin", username=account, is_admin="true")
        assert promoted[0] == 403


def test_a_restart_takes_the_pipelines_new_password_and_keeps_the_accounts(tmp_path: Path) -> None:
    start_server(tmp_path, COMMAND, **SETTINGS).stop()
    changed = {**SETTINGS, "UNDERSTUDY_PIPELINE_PASSWORD": "another password", "UNDERSTUDY_REVIEWERS": ""}
    server = start_server(tmp_path, (*COMMAND, "--workers", "2"), **changed)
    try:
        assert ask(server, TRAINER, "GET", "experiments/search?max_results=1")[0] == 401
        server_at(with_account(server, TRAINER, "another password")).check()
        done(ask(server, ADMIN, "POST", "users/create", username=REVIEWER, password=f"password-of-{REVIEWER}"))
        for _ in range(8):  # whichever worker answers
            status, said = ask(server, REVIEWER, "POST", ALIAS, name="digits", alias="champion", version="1")
            assert (status, "reviewers are nobody" in said) == (403, True)
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"UNDERSTUDY_PIPELINE_PASSWORD": ""}, "UNDERSTUDY_PIPELINE_PASSWORD is not set"),
        ({"UNDERSTUDY_PIPELINE_PASSWORD": "short"}, "a password needs 12 characters or more"),
        ({"UNDERSTUDY_REVIEWERS": "rita, pipeline"}, "pipeline is the pipeline's account"),
        ({"UNDERSTUDY_PIPELINE_USERNAME": ADMIN}, "admin is an admin"),
        ({"MLFLOW_AUTH_ADMIN_PASSWORD": ""}, "password to create the admin user"),
        ({"MLFLOW_FLASK_SERVER_SECRET_KEY": ""}, "MLFLOW_FLASK_SERVER_SECRET_KEY"),
    ],
    ids=["no-password", "short", "own-reviewer", "admin", "no-admin", "no-key"],
)
def test_with_wrong_settings_it_says_so_once_and_does_not_start(
    tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    environment = {**os.environ, "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{tmp_path}/server.db", **SETTINGS, **changed}
    command = [sys.executable, "-W", "ignore", "-m", *COMMAND]
    outcome = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert said in outcome.stderr.partition("the MLflow server does not start: ")[2]
    assert "Traceback" not in outcome.stderr


# What the rule rests on

METHODS = {
    "set_registered_model_alias",
    "delete_registered_model_alias",
    "delete_model_version",
    "delete_registered_model",
    "rename_registered_model",
}


def test_mlflow_has_no_other_way_to_an_alias_than_the_guarded_requests() -> None:
    spec = find_spec("mlflow")
    assert spec is not None
    assert spec.origin is not None
    callers, uses = Counter[str](), Counter[str]()
    for path in sorted((Path(spec.origin).parent / "server").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                called = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
                callers.update({function.name: len(called & METHODS)})
        uses.update(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    handlers = {name for name, count in callers.items() if count}
    assert handlers == {f"_{method}" for method in METHODS}
    assert {uses[name] for name in handlers} == {1}, "named once, in the table of requests"
