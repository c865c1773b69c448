"""The server that the manifests deploy: who has an account on it, and what it needs to start."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.registry.server_app.accounts import (
    ADMIN,
    ALIAS,
    COMMAND,
    REVIEWER,
    SETTINGS,
    TRAINER,
    ask,
    done,
    with_account,
)
from tests.registry.submitted import Server, start_server
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
