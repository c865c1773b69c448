"""Signing in with a token: a pod's, and a person's."""

import importlib
import secrets
import time
from pathlib import Path

import pytest

from tests.registry.submitted import Server
from tests.server.accounts import ADMIN, ALIAS, READER, STRANGER, ask, done
from tests.server.issuer import Issuer
from tests.server.store import accounts_in
from tests.unit.kube.api_server import API, ApiServer
from understudy.errors import UnderstudyError
from understudy.registry.client import mlflow_at, server_at
from understudy.registry.tracking import Value

ROBOTS, SPEECH = "robots:understudy-pipeline", "speech:understudy-pipeline"


@pytest.fixture
def model(guarded: Server, kubernetes: ApiServer) -> str:
    """A model that a pod of the team robots made, with a version."""
    pod, name = f"Bearer {kubernetes.issue(ROBOTS)}", f"robot-{secrets.token_hex(4)}"
    created = done(ask(guarded, pod, "POST", "experiments/create", name=name))
    run = done(ask(guarded, pod, "POST", "runs/create", experiment_id=created["experiment_id"]))["run"]["info"]
    done(ask(guarded, pod, "POST", "registered-models/create", name=name))
    source = {"source": f"{run['artifact_uri']}/model", "run_id": run["run_id"]}
    done(ask(guarded, pod, "POST", "model-versions/create", name=name, **source))
    return name


def test_a_pod_signs_in_with_its_token_and_its_team_owns_its_objects(
    guarded: Server, kubernetes: ApiServer, model: str
) -> None:
    for _ in range(2):  # another pod of the team, with another token
        done(ask(guarded, f"Bearer {kubernetes.issue(ROBOTS)}", "GET", f"registered-models/get?name={model}"))
    for account in (f"Bearer {kubernetes.issue(SPEECH)}", STRANGER, READER):
        for endpoint in (f"registered-models/get?name={model}", f"experiments/get-by-name?experiment_name={model}"):
            assert ask(guarded, account, "GET", endpoint)[0] == 404
        assert model not in str(done(ask(guarded, account, "GET", "registered-models/search")))


def test_a_token_is_replaced_while_a_run_goes_on(
    guarded: Server, kubernetes: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_AUTH", "understudy")
    monkeypatch.setenv("UNDERSTUDY_MLFLOW_TOKEN", str(tmp_path))
    written = tmp_path / "token"
    written.write_text(kubernetes.issue(ROBOTS))
    server = server_at(guarded.uri)
    experiment = server.experiment(tmp_path.name)
    files = mlflow_at(guarded.uri)
    written.write_text(kubernetes.issue(ROBOTS, life=6))  # time enough for the server to see it while it is good
    over = time.time() + 6.5
    run = server.make_run(experiment, int(1000 * time.time()), {}, "a run")
    time.sleep(max(0.0, over - time.time()))
    for ask_it in (lambda: server.log(run, [Value("loss", 1.0, 1, 1)]), lambda: files.steps(run)):
        with pytest.raises(UnderstudyError, match="this token has expired"):
            ask_it()
    written.write_text(kubernetes.issue(ROBOTS))
    server.log(run, [Value("loss", 1.0, 1, 1)])
    files.log(run, [Value("loss", 0.5, 2, 2)])
    files.client.log_text(run, "text", "a/file.txt")
    assert Path(files.download(f"runs:/{run}/a/file.txt", tmp_path)).read_text() == "text"
    assert server.steps(run) == files.steps(run) == {1, 2}


def test_tokens_for_other_servers_are_refused(guarded: Server, kubernetes: ApiServer) -> None:
    deleted = kubernetes.issue(ROBOTS)
    kubernetes.gone.add(deleted)
    for token in (deleted, kubernetes.issue(ROBOTS, API), kubernetes.issue(ROBOTS, life=-1), "a.b.c", "x"):
        status, message = ask(guarded, f"Bearer {token}", "GET", "experiments/search?max_results=1")
        assert status == 401
        assert token not in message or token == "x"


def test_an_account_that_no_team_names_may_nothing(guarded: Server, kubernetes: ApiServer) -> None:
    for account in ("robots:default", "robots:understudy-pipeline2", "kube-system:understudy-pipeline"):
        status, message = ask(guarded, f"Bearer {kubernetes.issue(account)}", "GET", "experiments/search?max_results=1")
        assert (status, "is in a team" in message) == (403, True)
    listed = str(done(ask(guarded, ADMIN, "GET", "users/list")))
    assert "robots:default" not in listed


def test_an_api_server_that_is_away_is_no_refusal(guarded: Server, kubernetes: ApiServer) -> None:
    token = kubernetes.issue(ROBOTS)
    kubernetes.status = 500
    assert ask(guarded, f"Bearer {token}", "GET", "experiments/search?max_results=1")[0] == 503
    kubernetes.status = 201
    done(ask(guarded, f"Bearer {token}", "GET", "experiments/search?max_results=1"))


def test_an_account_of_a_token_has_no_password(guarded: Server, model: str) -> None:
    name = f"system:serviceaccount:{ROBOTS}"
    assert name in str(done(ask(guarded, ADMIN, "GET", "users/list")))
    assert ask(guarded, name, "GET", "experiments/search?max_results=1")[0] == 401


def test_a_persons_groups_decide_about_reading_and_reviewing(guarded: Server, login: Issuer, model: str) -> None:
    person = f"Bearer {login.issue('ada', 'robot-people')}"
    lead = f"Bearer {login.issue('grace', 'robot-leads', 'others')}"
    for account in (person, lead):
        done(ask(guarded, account, "GET", f"registered-models/get?name={model}"))
        assert ask(guarded, account, "POST", "registered-models/create", name=f"{model}-2")[0] == 403
    champion = {"name": model, "alias": "champion", "version": "1"}
    assert ask(guarded, person, "POST", ALIAS, **champion)[0] == 403
    done(ask(guarded, lead, "POST", ALIAS, **champion))
    assert ask(guarded, f"Bearer {login.issue('eve', 'robot-people2')}", "GET", "users/current")[0] == 403
    assert ask(guarded, f"Bearer {login.issue('eve', 'robot-leads', aud='x')}", "GET", "users/current")[0] == 401


def test_who_left_a_group_reads_no_more_with_the_next_token(guarded: Server, login: Issuer, model: str) -> None:
    name = f"hopper-{secrets.token_hex(2)}"
    done(ask(guarded, f"Bearer {login.issue(name, 'robot-people')}", "GET", f"registered-models/get?name={model}"))
    assert ask(guarded, f"Bearer {login.issue(name, 'others')}", "GET", "users/current")[0] == 403


def test_a_password_still_signs_in_and_a_persons_name_is_none_of_these(guarded: Server, login: Issuer) -> None:
    pretender = f"Bearer {login.issue(ADMIN, 'robot-people')}"
    assert done(ask(guarded, pretender, "GET", "users/current"))["user"]["username"] == "person:admin"
    assert ask(guarded, pretender, "GET", "users/list")[0] == 403
    done(ask(guarded, ADMIN, "GET", "users/list"))


def test_who_has_no_account_is_asked_as_long_as_who_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in, store = accounts_in(tmp_path, monkeypatch)
    stored = importlib.import_module("mlflow.server.auth.sqlalchemy_store")
    store.create_user("rita", "password-of-rita")
    sign_in._create_account("person:ada")
    checked: list[str] = []
    check = stored.check_password_hash

    def watched(stored_hash: str, password: str) -> bool:
        checked.append(stored_hash.partition(":")[0])
        return bool(check(stored_hash, password))

    monkeypatch.setattr(stored, "check_password_hash", watched)
    monkeypatch.setattr(sign_in, "check_password_hash", watched)
    for name in ("rita", "nobody", "person:ada"):
        checked.clear()
        credentials = sign_in.Authorization("basic", {"username": name, "password": "a guess"})
        assert sign_in.verified_account(credentials).status == 401
        assert [kind for kind in checked if kind == "scrypt"] == ["scrypt"], name
