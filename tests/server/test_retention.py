"""The attack on the model behind the alias: a real server, and the account that made the promoted version."""

import base64
import json
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from tests.registry.submitted import RECIPE, Pipeline, Server, connect
from tests.server.accounts import ADMIN, ALIAS, APIS, READER, REVIEWER, TRAINER, ask, done, with_account
from understudy.registry.middleware.allowlist import allowed_routes


@dataclass(frozen=True)
class Promoted:
    """A version that is the champion, and the objects that it needs."""

    name: str
    version: str
    run: str
    experiment: str
    logged_model: str
    files: str
    """A folder of its files, as a path of the server's artifacts."""


@pytest.fixture(scope="module")
def promoted(guarded: Server, tmp_path_factory: pytest.TempPathFactory) -> Promoted:
    """A student of the pipeline that was promoted, and of which the alias moved on since."""
    pipeline = Pipeline(tmp_path_factory.mktemp("kept"), with_account(guarded, TRAINER), {**RECIPE, "name": "kept"})
    created = pipeline.register()
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=created.name, alias="champion", version=created.version))
    done(ask(guarded, REVIEWER, "DELETE", ALIAS, name=created.name, alias="champion"))
    client = connect(with_account(guarded, ADMIN))
    version = client.get_model_version(created.name, created.version)
    logged = client.get_logged_model(version.source.removeprefix("models:/"))
    files = str(logged.artifact_location).removeprefix("mlflow-artifacts:/")
    return Promoted(created.name, created.version, version.run_id, logged.experiment_id, logged.model_id, files)


def upload(
    server: Server, account: str, path: str, method: str = "PUT", route: str = "artifacts", api: str = APIS[0]
) -> int:
    """The status of a request for a file."""
    request = Request(f"{server.uri}/{api}/mlflow-artifacts/{route}/{path}", b"{}", method=method)
    request.add_header(
        "Authorization", "Basic " + base64.b64encode(f"{account}:password-of-{account}".encode()).decode()
    )
    request.add_header("Content-Type", "application/json")
    try:
        with urlopen(request, timeout=30) as response:
            return int(response.status)
    except HTTPError as error:
        with error:
            to = error.headers.get("Location")
            if error.code != 308:
                return error.code
    return upload(server, account, to.partition(f"/mlflow-artifacts/{route}/")[2], method, route, api)


METRIC = {"key": "accuracy", "value": 1, "timestamp": 1}
CHANGE: list[tuple[str, str, Callable[[Promoted], dict[str, Any]]]] = [
    ("POST", "runs/delete", lambda it: {"run_id": it.run}),
    ("POST", "runs/update", lambda it: {"run_id": it.run, "status": "FAILED"}),
    ("POST", "runs/update", lambda it: {"run_uuid": it.run, "status": "FAILED"}),
    ("POST", "runs/set-tag", lambda it: {"run_id": it.run, "key": "verdict", "value": "approved"}),
    ("POST", "runs/set-tag", lambda it: {"run_uuid": it.run, "key": "verdict", "value": "approved"}),
    ("POST", "runs/delete-tag", lambda it: {"run_id": it.run, "key": "verdict"}),
    ("POST", "runs/log-metric", lambda it: {"run_id": it.run, "key": "a", "value": 1, "timestamp": 1}),
    ("POST", "runs/log-parameter", lambda it: {"run_id": it.run, "key": "a", "value": "1"}),
    ("POST", "runs/log-metric", lambda it: {**METRIC, "run_id": "own", "model_id": it.logged_model}),
    ("POST", "runs/log-batch", lambda it: {"run_id": "own", "metrics": [{**METRIC, "model_id": it.logged_model}]}),
    ("POST", "runs/log-batch", lambda it: {"run_id": it.run, "tags": [{"key": "verdict", "value": "approved"}]}),
    ("POST", "runs/log-model", lambda it: {"run_id": it.run, "model_json": "{}"}),
    ("POST", "runs/log-inputs", lambda it: {"run_id": it.run, "datasets": []}),
    ("POST", "runs/outputs", lambda it: {"run_id": it.run, "models": []}),
    ("POST", "experiments/delete", lambda it: {"experiment_id": it.experiment}),
    ("POST", "experiments/delete", lambda it: {"experiment_id": f"0{it.experiment}"}),
    ("POST", "logged-models", lambda it: {"experiment_id": it.experiment, "name": "code", "source_run_id": it.run}),
    ("DELETE", "logged-models/{model}", lambda it: {}),
    ("PATCH", "logged-models/{model}", lambda it: {"status": "LOGGED_MODEL_UPLOAD_FAILED"}),
    ("PATCH", "logged-models/{model}/tags", lambda it: {"tags": [{"key": "a", "value": "b"}]}),
    ("DELETE", "logged-models/{model}/tags/understudy.digest", lambda it: {}),
    ("POST", "logged-models/{model}/params", lambda it: {"params": [{"key": "a", "value": "b"}]}),
]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("method", "endpoint", "body"), CHANGE, ids=[f"{m} {e}" for m, e, _ in CHANGE])
def test_no_account_changes_objects_that_a_promoted_version_needs(
    guarded: Server,
    promoted: Promoted,
    method: str,
    endpoint: str,
    body: Callable[[Promoted], dict[str, Any]],
    api: str,
) -> None:
    path = endpoint.replace("{model}", promoted.logged_model)
    for account in (TRAINER, REVIEWER, READER):
        status, message = ask(guarded, account, method, path, api, **body(promoted))
        assert (status, "cannot be changed: version " in message) == (403, True), message


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("spelling", ["{}", "/{}", "{}//", "./{}", "a/../{}"])
def test_its_files_are_replaced_by_nobody(guarded: Server, promoted: Promoted, spelling: str, api: str) -> None:
    path = spelling.format(promoted.files)
    for account in (TRAINER, READER):
        assert upload(guarded, account, f"{path}/MLmodel", api=api) in (400, 403)
        assert upload(guarded, account, f"{path}/MLmodel".replace("models", "%6dodels"), api=api) in (400, 403)
        assert upload(guarded, account, f"{path}/MLmodel".replace("models", "%256dodels"), api=api) in (400, 403)
        assert upload(guarded, account, f"{path}/new", api=api) in (400, 403)
        for route in ("mpu/create", "mpu/complete", "mpu/abort"):
            assert upload(guarded, account, f"{path}/MLmodel", "POST", route, api) in (400, 403)
    evidence = f"{promoted.experiment}/{promoted.run}/artifacts/verdict.json"
    assert upload(guarded, TRAINER, evidence, api=api) == 403


def test_an_upload_that_began_before_the_promotion_ends_in_nothing(
    guarded: Server, make_pipeline: Callable[..., Pipeline]
) -> None:
    created = make_pipeline(with_account(guarded, TRAINER), {**RECIPE, "name": "slow"}).register(weights=b"slow")
    client = connect(with_account(guarded, ADMIN))
    logged = client.get_logged_model(
        client.get_model_version(created.name, created.version).source.removeprefix("models:/")
    )
    file_path = f"{str(logged.artifact_location).removeprefix('mlflow-artifacts:/')}/MLmodel"
    netloc = urlsplit(guarded.uri).netloc
    token = base64.b64encode(f"{TRAINER}:password-of-{TRAINER}".encode()).decode()
    head = f"PUT /{APIS[0]}/mlflow-artifacts/artifacts/{file_path} HTTP/1.1\r\nHost: {netloc}\r\n"
    with socket.create_connection((netloc.split(":")[0], int(netloc.split(":")[1])), timeout=30) as slow:
        slow.sendall(f"{head}Authorization: Basic {token}\r\nContent-Length: 8\r\n\r\nevil".encode())
        time.sleep(1)  # until the server has begun with it
        done(ask(guarded, REVIEWER, "POST", ALIAS, name=created.name, alias="champion", version=created.version))
        slow.sendall(b"bad!")
        assert slow.recv(300).split()[1] == b"403"
    with urlopen(Request(f"{guarded.uri}/{APIS[0]}/mlflow-artifacts/artifacts/{file_path}", headers=auth())) as result:
        assert b"evil" not in result.read()


def auth(account: str = READER) -> dict[str, str]:
    token = base64.b64encode(f"{account}:password-of-{account}".encode()).decode()
    return {"Authorization": f"Basic {token}"}


def test_somebody_elses_run_is_no_evidence_of_ones_own_version(guarded: Server, promoted: Promoted) -> None:
    own_name = f"model-{secrets.token_hex(4)}"
    done(ask(guarded, READER, "POST", "registered-models/create", name=own_name))
    experiment = done(ask(guarded, READER, "POST", "experiments/create", name=own_name))["experiment_id"]
    run = done(ask(guarded, READER, "POST", "runs/create", experiment_id=experiment))["run"]["info"]
    source = {"name": own_name, "source": f"{run['artifact_uri']}/model"}
    status, message = ask(guarded, READER, "POST", "model-versions/create", **source, run_id=promoted.run)
    assert (status, message.startswith("run_id: ")) == (400, True), message
    done(ask(guarded, READER, "POST", "model-versions/create", **source, run_id=run["run_id"]))


def test_the_run_that_made_a_logged_model_is_kept_whichever_run_the_version_names(
    guarded: Server, make_pipeline: Callable[..., Pipeline]
) -> None:
    created = make_pipeline(with_account(guarded, TRAINER), {**RECIPE, "name": "two-runs"}).register(weights=b"two")
    client = connect(with_account(guarded, TRAINER))
    version = client.get_model_version(created.name, created.version)
    other_run = client.create_run(client.get_run(version.run_id).info.experiment_id)
    logged = version.source.removeprefix("models:/")
    again = client.create_model_version(created.name, version.source, run_id=other_run.info.run_id, model_id=logged)
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=created.name, alias="champion", version=str(again.version)))
    for run in (version.run_id, other_run.info.run_id):
        assert ask(guarded, TRAINER, "POST", "runs/delete", run_id=run)[0] == 403


def test_the_files_are_those_that_were_promoted(guarded: Server, promoted: Promoted, tmp_path: Any) -> None:
    """After all attempts above, and after a new one of each kind."""
    assert upload(guarded, TRAINER, f"{promoted.files}/MLmodel") == 403
    client = connect(with_account(guarded, READER))
    logged = client.get_logged_model(promoted.logged_model)
    assert str(logged.status) == "READY"
    assert client.get_run(promoted.run).info.status == "FINISHED"
    assert client.get_run(promoted.run).info.lifecycle_stage == "active"


def test_objects_of_unpromoted_versions_belong_to_their_account(
    guarded: Server, promoted: Promoted, make_pipeline: Callable[..., Pipeline]
) -> None:
    created = make_pipeline(with_account(guarded, TRAINER), {**RECIPE, "name": "kept"}).register(weights=b"another")
    client = connect(with_account(guarded, TRAINER))
    version = client.get_model_version(created.name, created.version)
    client.set_tag(version.run_id, "a", "b")
    assert upload(guarded, TRAINER, f"{promoted.experiment}/{version.run_id}/artifacts/verdict.json") == 200
    assert upload(guarded, TRAINER, f"{promoted.experiment}/models/{promoted.logged_model}-not/artifacts/a") == 200
    client.delete_logged_model(version.source.removeprefix("models:/"))
    client.delete_run(version.run_id)


def test_an_admin_may(guarded: Server, make_pipeline: Callable[..., Pipeline]) -> None:
    created = make_pipeline(with_account(guarded, TRAINER), {**RECIPE, "name": "kept"}).register(
        weights=secrets.token_bytes(4)
    )
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=created.name, alias="champion", version=created.version))
    client = connect(with_account(guarded, ADMIN))
    client.set_tag(client.get_model_version(created.name, created.version).run_id, "a", "b")


# Assumptions about MLflow

HARMLESS = {
    "createExperiment": "makes one",
    "restoreExperiment": "brings back",
    "updateExperiment": "its name and nothing else",
    "setExperimentTag": "of the experiment alone",
    "deleteExperimentTag": "of the experiment alone",
    "createRun": "makes one",
    "restoreRun": "brings back",
    "searchExperiments": "reads",
    "searchRuns": "reads",
    "searchLoggedModels": "reads",
    "createPresignedDownloadUrl": "reads",
}


REQUESTS = """
import json
from mlflow.protos.service_pb2 import MlflowService
from mlflow.server import handlers
from understudy_server.retention import CHANGES
for path, kind, methods in handlers.get_service_endpoints(MlflowService, lambda kind: kind):
    print(json.dumps([path, kind.DESCRIPTOR.name, methods, kind in CHANGES]))
"""


def test_every_other_request_that_is_served_changes_none_of_it() -> None:
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REQUESTS], capture_output=True, text=True, check=True
    )
    routes, unguarded = allowed_routes(), set()
    for path, kind, methods, guarded in map(json.loads, output.stdout.splitlines()):
        concrete = re.sub("<[^>]+>", "x", path)
        passes = any(route.path.fullmatch(concrete) and set(methods) & route.methods for route in routes)
        if passes and set(methods) != {"GET"} and not guarded:
            unguarded.add(kind[0].lower() + kind[1:])
    assert unguarded == HARMLESS.keys()
