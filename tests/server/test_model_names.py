import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.registry.submitted import Server, empty_database
from tests.server.accounts import ADMIN, APIS, SETTINGS, STRANGER, TRAINER, ask, done

BAD = ("*", " *", "x" * 256)


def audited(server: Server) -> int:
    after = 0
    while lines := done(ask(server, ADMIN, "GET", f"understudy/audit?after={after}"))["lines"]:
        after += len(lines)
    return after


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", BAD)
def test_nobody_makes_a_model_with_a_name_that_rights_cannot_hold(guarded: Server, name: str, api: str) -> None:
    done(ask(guarded, STRANGER, "GET", "users/current"))  # its first sign-in is a line
    lines = audited(guarded)
    for account in (STRANGER, ADMIN):
        assert ask(guarded, account, "POST", "registered-models/create", api, name=name)[0] == 400
    assert audited(guarded) == lines
    listed = done(ask(guarded, ADMIN, "GET", "registered-models/search?max_results=1000"))
    assert name not in {model["name"] for model in listed.get("registered_models", ())}


@pytest.mark.parametrize("name", BAD)
def test_nobody_renames_a_model_so(guarded: Server, name: str) -> None:
    theirs, own_name = f"vision-{secrets.token_hex(4)}", f"speech-{secrets.token_hex(4)}"
    done(ask(guarded, TRAINER, "POST", "registered-models/create", name=theirs))
    done(ask(guarded, STRANGER, "POST", "registered-models/create", name=own_name))
    for account in (STRANGER, ADMIN):
        assert ask(guarded, account, "POST", "registered-models/rename", name=own_name, new_name=name)[0] == 400
        assert ask(guarded, STRANGER, "GET", f"registered-models/get?name={theirs}")[0] == 404
        done(ask(guarded, STRANGER, "GET", f"registered-models/get?name={own_name}"))


def test_the_longest_name_is_its_teams(guarded: Server) -> None:
    name = secrets.token_hex(4) + "x" * 247
    done(ask(guarded, STRANGER, "POST", "registered-models/create", name=name))
    done(ask(guarded, STRANGER, "GET", f"registered-models/get?name={name}"))


LEFT = """
from understudy_server import ownership
from understudy_server.app import accounts, auth, create_accounts
create_accounts()
role = auth.store.get_role_by_name("default", "team:speech:write").id
auth.store.add_role_permission(role, "registered_model", "*", "MANAGE")
auth.store.create_user("mallory", "password-of-mallory")
auth.store.grant_user_permission("mallory", "registered_model", "*", "MANAGE")
ownership.create_roles(accounts())
assert ownership.team_of("registered_model", "*") is None
for give in (
    lambda: ownership.assign("speech", "registered_model", "*"),
    lambda: ownership.move_permissions("registered_model", "mine", "*"),
):
    try:
        give()
    except ValueError as error:
        assert "everything" in str(error)
    else:
        raise AssertionError
"""


def test_a_right_to_everything_is_no_teams_even_if_one_was_left(tmp_path: Path) -> None:
    (tmp_path / "server.db").write_bytes(empty_database())
    environment = {**os.environ, **SETTINGS, "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{tmp_path}/server.db"}
    command = [sys.executable, "-W", "ignore", "-c", LEFT]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True)
