"""The server that the manifests deploy: its accounts, and the settings that it needs to start."""

import json
import secrets
import subprocess
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from mlflow.entities import Param

from tests.registry.submitted import Server, connect, start_server
from tests.server.accounts import (
    ALIAS,
    COMMAND,
    REVIEWER,
    SETTINGS,
    TRAINER,
    ask,
    done,
    make_accounts,
    with_account,
)
from tests.server.forks import in_forks
from understudy.errors import UnderstudyError
from understudy.registry.client import server_at


def test_without_an_account_there_is_the_health_check_and_nothing_else(guarded: Server) -> None:
    assert ask(guarded, None, "POST", ALIAS, name="digits", alias="champion", version="1")[0] == 401
    assert ask(guarded, "nobody", "GET", "experiments/search?max_results=1")[0] == 401
    for uri in (guarded.uri, with_account(guarded, TRAINER, "wrong")):
        with pytest.raises(UnderstudyError, match=r"refuses access .401.; set MLFLOW_TRACKING_USERNAME"):
            server_at(uri).check()
    probe = Request(f"{guarded.uri}/health", headers={"Host": "10.0.0.7:5000"})  # the kubelet asks by address
    with urlopen(probe, timeout=30) as response:
        assert response.status == 200


def test_mlflows_own_client_works_through_all_of_it(guarded: Server, tmp_path: Path) -> None:
    client = connect(with_account(guarded, TRAINER))
    name = f"client-{secrets.token_hex(4)}"
    experiment = client.create_experiment(name, tags={"a": "b"})
    run = client.create_run(experiment).info.run_id
    client.log_metric(run, "loss", 1.0, step=1)
    client.log_batch(run, params=[Param("rate", "0.1")])
    client.set_tag(run, "c", "d")
    client.delete_tag(run, "c")
    client.log_text(run, "weights", "model/weights.txt")
    client.set_terminated(run)
    assert [result.info.run_id for result in client.search_runs([experiment])] == [run]
    assert [point.value for point in client.get_metric_history(run, "loss")] == [1.0]
    assert Path(client.download_artifacts(run, "model/weights.txt", str(tmp_path))).read_text() == "weights"
    client.create_registered_model(name, description="a model")
    version = client.create_model_version(name, f"{client.get_run(run).info.artifact_uri}/model", run).version
    client.set_registered_model_alias(name, "challenger", version)
    client.set_model_version_tag(name, version, "e", "f")
    client.delete_model_version_tag(name, version, "e")
    client.update_model_version(name, version, "a version")
    assert client.get_model_version_by_alias(name, "challenger").description == "a version"
    assert [result.version for result in client.search_model_versions(f"name='{name}'")] == [version]
    client.delete_registered_model_alias(name, "challenger")
    client.delete_model_version(name, version)
    client.rename_registered_model(name, f"{name}-2")
    client.delete_registered_model(f"{name}-2")
    client.delete_run(run)
    client.restore_run(run)
    client.delete_experiment(experiment)


def test_only_an_admin_makes_accounts(guarded: Server) -> None:
    for account in (TRAINER, REVIEWER):
        created = ask(guarded, account, "POST", "users/create", username="somebody", password="of twelve letters")
        assert created[0] == 403
        promoted = ask(guarded, account, "PATCH", "users/update-admin", username=account, is_admin="true")
        assert promoted[0] == 403


@pytest.mark.full
def test_a_restart_keeps_the_accounts_and_takes_the_teams_of_now(tmp_path: Path) -> None:
    started = start_server(tmp_path, COMMAND, **SETTINGS)
    make_accounts(started, TRAINER, REVIEWER)
    done(ask(started, TRAINER, "POST", "registered-models/create", name="digits"))
    done(ask(started, REVIEWER, "GET", "registered-models/get?name=digits"))
    started.stop()
    changed = {**SETTINGS, "UNDERSTUDY_ACCOUNTS": json.dumps({"teams": {"vision": {"writers": [TRAINER]}}})}
    server = start_server(tmp_path, (*COMMAND, "--workers", "2"), **changed)
    try:
        for _ in range(8):  # whichever worker answers
            assert ask(server, REVIEWER, "GET", "registered-models/get?name=digits")[0] == 404
            status, message = ask(server, TRAINER, "POST", ALIAS, name="digits", alias="champion", version="1")
            assert (status, "reviewers of the team vision are nobody" in message) == (403, True)
    finally:
        server.stop()


WRONG = {
    "own-reviewer": (
        {"UNDERSTUDY_ACCOUNTS": "teams: {vision: {writers: [pipeline], reviewers: [pipeline]}}"},
        "a writer and a rev",
    ),
    "no-teams": ({"UNDERSTUDY_ACCOUNTS": "teams: [vision]"}, "UNDERSTUDY_ACCOUNTS: teams: "),
    "old": ({"UNDERSTUDY_REVIEWERS": "rita"}, "UNDERSTUDY_REVIEWERS: is not read any more"),
    "no-admin": ({"MLFLOW_AUTH_ADMIN_PASSWORD": ""}, "password to create the admin user"),
    "no-key": ({"MLFLOW_FLASK_SERVER_SECRET_KEY": ""}, "MLFLOW_FLASK_SERVER_SECRET_KEY"),
    "few-threads": (
        {"UNDERSTUDY_MLFLOW_THREADS": "3"},
        "UNDERSTUDY_MLFLOW_THREADS: '3' is not a number of threads; write 4 or more",
    ),
    "no-promotion-key": (
        {"UNDERSTUDY_PROMOTION_KEY": "no key at all"},
        "UNDERSTUDY_PROMOTION_KEY: is no Ed25519 key in PEM",
    ),
}
"""Settings, and the errors about them."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, "subprocess.CompletedProcess[str]"]:
    """How a start with each of the wrong settings ends."""
    folder = tmp_path_factory.mktemp("wrong")
    environments = [
        {"MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder}/{name}.db", **SETTINGS, **changed}
        for name, (changed, _) in WRONG.items()
    ]
    return dict(zip(WRONG, in_forks("app.main()", environments, folder), strict=True))


@pytest.mark.parametrize("name", WRONG)
def test_with_wrong_settings_it_prints_one_error_and_does_not_start(
    outcomes: dict[str, "subprocess.CompletedProcess[str]"], name: str
) -> None:
    outcome, (_, message) = outcomes[name], WRONG[name]
    assert outcome.returncode == 1
    assert message in outcome.stderr.partition("the MLflow server does not start: ")[2]
    assert "Traceback" not in outcome.stderr
