"""The server's audit of changes: a real server, with requests of each account."""

import json
import secrets
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.registry.submitted import Server
from tests.server.accounts import ADMIN, ALIAS, APIS, READER, REVIEWER, TRAINER, ask, done, with_account
from tests.server.issuer import Issuer
from understudy.errors import UnderstudyError
from understudy.registry import audit
from understudy.store.files import sha256


@pytest.fixture
def changes(guarded: Server) -> Callable[[], list[dict[str, Any]]]:
    """The audit lines since the test began."""
    uri = with_account(guarded, ADMIN)
    for account in (TRAINER, REVIEWER, READER):  # the first sign-in is a line, too
        done(ask(guarded, account, "GET", "users/current"))
    before = len(list(audit.lines_of(uri)))

    def since() -> list[dict[str, Any]]:
        lines = list(audit.lines_of(uri))
        assert audit.verify(lines).lines == len(lines)
        return [json.loads(line) for line in lines[before:]]

    return since


@pytest.fixture
def model(guarded: Server) -> str:
    """A model of the pipeline's account with a version."""
    name = f"model-{secrets.token_hex(4)}"
    experiment = done(ask(guarded, TRAINER, "POST", "experiments/create", name=name))["experiment_id"]
    run = done(ask(guarded, TRAINER, "POST", "runs/create", experiment_id=experiment))["run"]["info"]
    done(ask(guarded, TRAINER, "POST", "registered-models/create", name=name))
    source = {"source": f"{run['artifact_uri']}/model", "run_id": run["run_id"]}
    done(ask(guarded, TRAINER, "POST", "model-versions/create", name=name, **source))
    return name


Changes = Callable[[], list[dict[str, Any]]]


def test_every_line_is_in_the_servers_log_too(guarded: Server, model: str) -> None:
    log = Path(f"/proc/{guarded.process.pid}/fd/2").read_text()
    (line,) = [line for line in log.splitlines() if f'"model": "{model}", "version": "1"' in line]
    assert log.count("Application startup complete") == 1
    written = line.partition(" INFO understudy_server.audit: ")[2]
    assert written in audit.lines_of(with_account(guarded, ADMIN))


@pytest.mark.parametrize("api", APIS)
def test_a_promotion_is_a_line(guarded: Server, model: str, changes: Changes, api: str) -> None:
    before = changes()
    done(ask(guarded, REVIEWER, "POST", ALIAS, api, name=model, alias="champion", version="1"))
    (line,) = changes()[len(before) :]
    assert (line["who"], line["where"], line["what"]) == (REVIEWER, "127.0.0.1", f"POST {ALIAS}")
    assert (line["model"], line["version"], line["alias"]) == (model, "1", "champion")
    assert (line["before"]["aliases"], line["after"]["aliases"]) == ({}, {"champion": 1})
    assert line["before"]["version"]["tags"] == {}
    assert line["after"]["version"]["tags"]["understudy.promoted"].startswith(f"by {REVIEWER}")


def test_who_comes_over_loopback_does_not_say_where_from(guarded: Server, changes: Changes) -> None:
    name = f"model-{secrets.token_hex(4)}"
    request = Request(f"{guarded.uri}/api/2.0/mlflow/registered-models/create", json.dumps({"name": name}).encode())
    token = b64encode(f"{TRAINER}:password-of-{TRAINER}".encode()).decode()
    for header, value in (
        ("Authorization", f"Basic {token}"),
        ("Content-Type", "application/json"),
        ("X-Forwarded-For", "203.0.113.9"),
    ):
        request.add_header(header, value)
    with urlopen(request, timeout=30):
        pass
    (line,) = changes()
    assert (line["where"], line["forwarded"], line["model"]) == ("127.0.0.1", "203.0.113.9", name)


def test_making_and_deleting_are_lines(guarded: Server, changes: Changes, model: str) -> None:
    done(ask(guarded, TRAINER, "DELETE", "model-versions/delete", name=model, version="1"))
    done(ask(guarded, TRAINER, "POST", "registered-models/rename", name=model, new_name=f"{model}-2"))
    done(ask(guarded, TRAINER, "DELETE", "registered-models/delete", name=f"{model}-2"))
    lines = changes()
    assert [(line["what"], line["model"], line["version"]) for line in lines] == [
        ("POST experiments/create", model, None),
        ("POST registered-models/create", model, None),
        ("POST model-versions/create", model, "1"),
        ("DELETE model-versions/delete", model, "1"),
        ("POST registered-models/rename", model, None),
        ("DELETE registered-models/delete", f"{model}-2", None),
    ]
    created, deleted, renamed = lines[2], lines[3], lines[4]
    assert (created["before"], created["after"]["version"]["number"]) == (
        {"aliases": {}, "tags": {}, "description": ""},
        "1",
    )
    assert (deleted["before"]["version"]["number"], deleted["after"]) == ("1", None)
    assert renamed["after"] is not None


def test_long_values_are_distinguished_in_a_state_and_not_repeated_by_each_change(
    guarded: Server, model: str, changes: Changes
) -> None:
    before, long = len(changes()), "x" * 5000

    def tag(key: str, value: str) -> None:
        done(ask(guarded, TRAINER, "POST", "registered-models/set-tag", name=model, key=key, value=value))

    tag("long", long)
    for number in range(2):
        tag("small", str(number))
    created, *small = changes()[before:]
    assert created["asked"]["value"] == long, "who wrote it is asked once"
    digest = {"sha256": sha256(long.encode()), "length": 5000}
    assert [line["after"]["tags"] for line in small] == [{"long": digest, "small": number} for number in "01"]
    for number in range(80):
        tag(f"key{number}", "x" * 256)
    *_, last = changes()
    assert last["before"]["tags"] != last["after"]["tags"]
    assert set(last["after"]["tags"]) == {"sha256", "length"}
    assert len(json.dumps(last)) < 2000


def test_refused_requests_and_reads_have_no_line(guarded: Server, model: str, changes: Changes) -> None:
    before = changes()
    assert ask(guarded, TRAINER, "POST", ALIAS, name=model, alias="champion", version="1")[0] == 403
    assert ask(guarded, READER, "POST", ALIAS, name=model, alias="challenger", version="1")[0] == 403
    assert ask(guarded, TRAINER, "POST", ALIAS, name=model, alias="challenger", version="99")[0] == 404
    done(ask(guarded, READER, "POST", "registered-models/get-latest-versions", name=model))
    done(ask(guarded, READER, "POST", "experiments/search", max_results=1))
    assert changes() == before


def test_accounts_are_audited_without_their_passwords(guarded: Server, changes: Changes) -> None:
    name, password = f"account-{secrets.token_hex(4)}", secrets.token_hex(8)
    done(ask(guarded, ADMIN, "POST", "users/create", username=name, password=password))
    ask(guarded, ADMIN, "PATCH", "users/update-admin", username=name, is_admin=True)
    ask(guarded, ADMIN, "PATCH", "users/update-password", username=name, password=f"{password} new")
    lines = changes()
    assert [line["what"] for line in lines] == [
        "POST users/create",
        "PATCH users/update-admin",
        "PATCH users/update-password",
    ]
    assert [line["before"] for line in lines] == [None, {"is_admin": False}, {"is_admin": True}]
    assert [line["after"] for line in lines] == [{"is_admin": False}, {"is_admin": True}, {"is_admin": True}]
    assert {line["asked"]["username"] for line in lines} == {name}
    assert password not in json.dumps(lines)


def test_only_admins_read_the_audit(guarded: Server) -> None:
    for account in (READER, TRAINER, REVIEWER):
        with pytest.raises(UnderstudyError, match=r"refuses access .403."):
            list(audit.lines_of(with_account(guarded, account)))


def test_a_change_has_a_line_for_any_form_of_its_path(guarded: Server, changes: Changes) -> None:
    number = done(ask(guarded, TRAINER, "POST", "experiments/create", name=secrets.token_hex(4)))["experiment_id"]
    created = done(ask(guarded, TRAINER, "POST", "logged-models", experiment_id=number, name="a"))["model"]["info"]
    tags = f"logged-models/{created['model_id']}/tags"
    for key in ("plain", "trailing\n"):
        done(ask(guarded, TRAINER, "PATCH", tags, tags=[{"key": key, "value": "b"}]))
        done(ask(guarded, TRAINER, "DELETE", f"{tags}/{quote(key)}"))
        assert [line["what"] for line in changes()[-2:]] == [f"PATCH {tags}", f"DELETE {tags}/{key}"]


def test_an_account_and_roles_that_a_token_brings_are_lines(guarded: Server, login: Issuer, changes: Changes) -> None:
    before, name = len(changes()), f"lovelace-{secrets.token_hex(4)}"
    for groups in (["robot-people"], ["robot-people"], ["robot-people", "robot-leads"]):
        done(ask(guarded, f"Bearer {login.issue(name, *groups)}", "GET", "users/current"))
    created, assigned = changes()[before:]
    assert {(line["who"], line["where"]) for line in (created, assigned)} == {(f"person:{name}", "127.0.0.1")}
    assert (created["what"], created["before"], created["after"]) == ("SIGN-IN users", None, {"is_admin": False})
    assert assigned["what"] == "SIGN-IN roles"
    assert (assigned["before"], assigned["after"]) == ({"roles": []}, {"roles": ["team:robots:read"]})
