"""The answer of every allowed route to every kind of account, about resources of the team vision."""

import re
import secrets
import sqlite3
from base64 import b64encode
from contextlib import closing
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.registry.submitted import Server
from tests.server.accounts import ADMIN, ALIAS, READER, REVIEWER, STRANGER, TRAINER, ask, done
from understudy.registry.middleware.allowlist import ARTIFACTS, PAGES, PROGRAMS, ROLES

ASKING = (None, STRANGER, READER, TRAINER, REVIEWER, ADMIN)
SECRET = "only-vision-knows"
HARMS = re.compile(r"DELETE|\bdelete|restore|rename|(experiments|runs)/update|runs/outputs|PATCH logged-models/[^/]+$")
"""After such a request the next one is asked about other things."""
# Nobody, another team's pipeline, a reader of the team, its pipeline, its reviewer, an admin. What they are answered:
# . 401, x 403, b 400 for what it names, 0 404 as if it were not there, y 200, e 200 without the team's things, p let
# through, whatever then.
TABLE = """
POST experiments/create {"name": "{new}"}                                                          .yyyxy
POST experiments/delete {"experiment_id": "{experiment}"}                                          .xxyxy
POST experiments/restore {"experiment_id": "{experiment}"}                                         .xxpxp
POST experiments/update {"experiment_id": "{experiment}", "new_name": "{new}"}                     .xxyxy
POST experiments/set-experiment-tag {"experiment_id": "{experiment}", "key": "a", "value": "b"}    .xxyxy
POST experiments/delete-experiment-tag {"experiment_id": "{experiment}", "key": "a"}               .xxpxp
GET experiments/get?experiment_id={experiment}                                                     .xyyyy
GET experiments/get-by-name?experiment_name={name}                                                 .0yyyy
GET experiments/search?max_results=1000                                                            .eyyyy
POST experiments/search {"max_results": 1000}                                                      .eyyyy
POST runs/create {"experiment_id": "{experiment}"}                                                 .xxyxy
POST runs/update {"run_id": "{run}", "status": "FINISHED"}                                         .xxyxy
POST runs/delete {"run_id": "{run}"}                                                               .xxyxy
POST runs/restore {"run_id": "{run}"}                                                              .xxpxp
POST runs/search {"experiment_ids": ["{experiment}"]}                                              .eyyyy
POST runs/set-tag {"run_id": "{run}", "key": "a", "value": "b"}                                    .xxyxy
POST runs/delete-tag {"run_id": "{run}", "key": "secret"}                                          .xxyxy
POST runs/log-metric {"run_id": "{run}", "key": "a", "value": 1, "timestamp": 1}                   .xxyxy
POST runs/log-parameter {"run_id": "{run}", "key": "a", "value": "b"}                              .xxyxy
POST runs/log-batch {"run_id": "{run}"}                                                            .xxyxy
POST runs/log-inputs {"run_id": "{run}"}                                                           .xxyxy
POST runs/log-model {"run_id": "{run}", "model_json": "{}"}                                      .xxpxp
POST runs/outputs {"run_id": "{run}", "models": [{"model_id": "{logged}"}]}                        .xxyxy
GET runs/get?run_id={run}                                                                          .xyyyy
GET metrics/get-history?run_id={run}&metric_key=loss                                               .xyyyy
GET metrics/get-history-bulk-interval?run_ids={run}&metric_key=loss&max_results=10                 .xyyyy
GET artifacts/list?run_id={run}                                                                    .xyyyy
POST artifacts/presigned-download-url {"run_id": "{run}", "path": "secret.txt"}                    .xpppp
POST logged-models {"experiment_id": "{experiment}"}                                               .xxyxy
POST logged-models/search {"experiment_ids": ["{experiment}"]}                                     .eyyyy
POST logged-models/{logged}/params {"params": []}                                                  .xxpxp
GET logged-models/{logged}                                                                         .xyyyy
PATCH logged-models/{logged} {"model_id": "{logged}", "status": "LOGGED_MODEL_READY"}              .xxyxy
DELETE logged-models/{logged}                                                                      .xxyxy
PATCH logged-models/{logged}/tags {"tags": [{"key": "a", "value": "b"}]}                         .xxyxy
DELETE logged-models/{logged}/tags/secret                                                          .xxpxp
GET logged-models/{logged}/artifacts/directories                                                   .xyyyy
POST registered-models/create {"name": "{new}"}                                                    .yyyxy
POST registered-models/rename {"name": "{name}", "new_name": "{new}"}                              .0xyxy
POST registered-models/set-tag {"name": "{name}", "key": "a", "value": "b"}                        .0xyxy
PATCH registered-models/update {"name": "{name}", "description": "a"}                              .0xyxy
DELETE registered-models/delete {"name": "{name}"}                                                 .0xyxy
DELETE registered-models/delete-tag {"name": "{name}", "key": "a"}                                 .0xyxy
GET registered-models/get?name={name}                                                              .0yyyy
GET registered-models/search?max_results=100                                                       .eyyyy
GET registered-models/get-latest-versions?name={name}                                              .0yyyy
POST registered-models/get-latest-versions {"name": "{name}"}                                      .0yyyy
GET registered-models/alias?name={name}&alias=challenger                                           .0yyyy
POST registered-models/alias {"name": "{name}", "alias": "challenger", "version": "1"}             .0xyxy
DELETE registered-models/alias {"name": "{name}", "alias": "challenger"}                           .0xyxy
POST model-versions/create {"name": "{name}", "source": "{files}", "run_id": "{run}"}              .0byby
POST model-versions/set-tag {"name": "{name}", "version": "1", "key": "a", "value": "b"}           .0xyxy
POST model-versions/transition-stage {"name": "{name}", "version": "1", "stage": "Staging"}        .0xyxy
PATCH model-versions/update {"name": "{name}", "version": "1", "description": "a"}                 .0xyxy
DELETE model-versions/delete {"name": "{name}", "version": "1"}                                    .0xyxy
DELETE model-versions/delete-tag {"name": "{name}", "version": "1", "key": "a"}                    .0xyxy
GET model-versions/get?name={name}&version=1                                                       .0yyyy
GET model-versions/search?max_results=1000                                                         .eyyyy
GET model-versions/get-download-uri?name={name}&version=1                                          .0yyyy
POST users/create {"username": "{new}", "password": "of twelve letters"}                           .xxxxy
GET users/get?username=pipeline                                                                    .xxyxy
GET users/list                                                                                     .xxxxy
GET users/current                                                                                  .yyyyy
PATCH users/update-password {"username": "pipeline", "password": "password-of-pipeline"}           .xxpxy
PATCH users/update-admin {"username": "pipeline", "is_admin": false}                               .xxxxy
DELETE users/delete {"username": "nobody"}                                                         .xxxxp
GET webhooks                                                                                       .xxxxy
POST webhooks {"name": "a"}                                                                        .xxxxp
GET webhooks/x                                                                                     .xxxxp
PATCH webhooks/x {"name": "a"}                                                                     .xxxxp
DELETE webhooks/x                                                                                  .xxxxp
POST webhooks/x/test {}                                                                            .xxxxp
POST 3 roles/create {"name": "{new}", "workspace": "default"}                                      .xxxxp
POST 3 roles/assign {"username": "nobody", "role_id": {role}}                                      .xxxxp
POST 3 roles/permissions/add {"role_id": {role}}                                                   .xxxxp
GET 3 roles/get?role_id={role}                                                                     .xxxxy
GET 3 roles/list?workspace=default                                                                 .xxxxy
GET 3 roles/permissions/list?role_id={role}                                                        .xxxxy
GET 3 roles/users/list?role_id={role}                                                              .xxxxy
PATCH 3 roles/update {"role_id": {role}}                                                           .xxxxp
PATCH 3 roles/permissions/update {"role_permission_id": 1}                                         .xxxxp
DELETE 3 roles/delete {"role_id": 999999}                                                          .xxxxp
DELETE 3 roles/unassign {"username": "eve", "role_id": 999999}                                     .xxxxp
DELETE 3 roles/permissions/remove {"role_permission_id": 999999}                                   .xxxxp
GET 3 users/current/permissions                                                                    .yyyyy
GET 3 users/permissions/get?username=pipeline&resource_type=experiment&resource_id={experiment}    .xxyxy
GET 3 users/permissions/list?username=pipeline                                                     .xxyxy
GET 3 users/roles/list?username=pipeline                                                           .xxyxy
POST 3 users/permissions/grant {"username": "nobody"}                                              .xxxxp
POST 3 users/permissions/revoke {"username": "nobody"}                                             .xxxxp
GET a artifacts?path={experiment}/{run}/artifacts                                                  .xyyyy
GET a presigned/{experiment}/{run}/artifacts/secret.txt                                            .xpppp
GET a artifacts/{experiment}/{run}/artifacts/secret.txt                                            .xyyyy
PUT a artifacts/{experiment}/{run}/artifacts/another.txt {}                                        .xxyxy
POST a mpu/create/{experiment}/{run}/artifacts/b {}                                                .xxpxp
POST a mpu/complete/{experiment}/{run}/artifacts/b {}                                              .xxpxp
POST a mpu/abort/{experiment}/{run}/artifacts/b {}                                                 .xxpxp
GET / /                                                                                            .yyyyy
GET / /health                                                                                      yyyyyy
GET / /version                                                                                     .yyyyy
GET / /signup                                                                                      .xxxxp
GET / /static-files/none                                                                           pppppp
GET / /get-artifact?run_id={run}&path=secret.txt                                                   .xyyyy
GET / /model-versions/get-artifact?name={name}&version=1&path=secret.txt                           .xyyyy
GET / /graphql                                                                                     .ppppp
POST / /graphql {"query": "{graphql}"}                                                             .epppp
POST / /api/2.0/mlflow/users/create-ui {}                                                          .xxxxp
GET / /api/2.0/mlflow/understudy/audit                                                             .xxxxy
POST / /ajax-api/2.0/mlflow/experiments/search-datasets {"experiment_ids": ["{experiment}"]}       .xyyyy
GET / /ajax-api/2.0/mlflow/metrics/get-history-bulk?run_id={run}&metric_key=loss                   .xyyyy
GET / /ajax-api/2.0/mlflow/logged-models/{logged}/artifacts/files?artifact_file_path=a             .xpppp
"""
QUERY = 'query { mlflowGetRun(input: {runId: \\"RUN\\"}) { run { data { tags { value } } } } }'
PLACES = {"2": "{api}/2.0/mlflow/", "3": "{api}/3.0/mlflow/", "a": "{api}/2.0/mlflow-artifacts/", "/": ""}


@dataclass
class TeamObjects:
    """Objects of the team vision."""

    name: str
    experiment: str
    run: str
    logged: str
    files: str
    role: str
    new: str = ""


class Line:
    """A line of the table."""

    def __init__(self, text: str) -> None:
        request, _, self.expected = text.rpartition(" ")
        match = re.fullmatch(r"(\S+) (?:([3a/]) )?(\S+)(?: +(\{.*\}))? *", request)
        assert match, text
        self.method, self.place, self.target, self.body = match[1], match[2] or "2", match[3], match[4]

    def filled_in(self, objects: TeamObjects, api: str) -> tuple[str, str, bytes | None]:
        filled = {**asdict(objects), "new": secrets.token_hex(6), "graphql": QUERY.replace("RUN", objects.run)}
        text = self.body or ""
        for name, value in filled.items():
            text = text.replace("{" + name + "}", value)
        body = text.encode() if self.body else None
        return self.method, PLACES[self.place].format(api=api) + self.target.format(**filled), body


LINES = [Line(text) for text in TABLE.strip().splitlines()]


def make(server: Server) -> TeamObjects:
    name = f"vision-{secrets.token_hex(6)}"
    tags = [{"key": "secret", "value": SECRET}]
    experiment = done(ask(server, TRAINER, "POST", "experiments/create", name=name, tags=tags))["experiment_id"]
    run = done(ask(server, TRAINER, "POST", "runs/create", experiment_id=experiment, tags=tags))["run"]["info"]
    logged = {"experiment_id": experiment, "source_run_id": run["run_id"], "tags": tags}
    logged = done(ask(server, TRAINER, "POST", "logged-models", **logged))["model"]["info"]["model_id"]
    metric = {"key": "loss", "value": 1, "timestamp": 1, "step": 1}
    done(ask(server, TRAINER, "POST", "runs/log-metric", run_id=run["run_id"], **metric))
    address = f"/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run['run_id']}/artifacts/secret.txt"
    assert send(server, TRAINER, "PUT", address, SECRET.encode())[0] == 200
    done(ask(server, TRAINER, "POST", "registered-models/create", name=name, tags=tags))
    source = {"source": run["artifact_uri"], "run_id": run["run_id"], "tags": tags}
    done(ask(server, TRAINER, "POST", "model-versions/create", name=name, **source))
    done(ask(server, TRAINER, "POST", ALIAS, name=name, alias="challenger", version="1"))
    roles = done(ask(server, TRAINER, "GET", f"users/roles/list?username={TRAINER}", "api/3.0"))["roles"]
    [role] = [str(role["id"]) for role in roles if role["name"] == "team:vision:write"]
    return TeamObjects(name, experiment, run["run_id"], logged, run["artifact_uri"], role)


def send(server: Server, account: str | None, method: str, target: str, body: bytes | None) -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(server.uri).netloc, timeout=60)
    headers = {"Content-Type": "application/json"} if body else {}
    if account:
        headers["Authorization"] = "Basic " + b64encode(f"{account}:password-of-{account}".encode()).decode()
    try:
        connection.request(method, target, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def is_as_expected(expected: str, status: int, message: str) -> bool:
    leaked = SECRET in message
    return {
        ".": status == 401 and not leaked,
        "x": status == 403 and not leaked,
        "b": status == 400 and "cannot write to" in message and not leaked,
        "0": status == 404 and "RESOURCE_DOES_NOT_EXIST" in message and not leaked,
        "e": status == 200 and not leaked,
        "y": status == 200,
        "p": status not in (401, 403),
    }[expected]


def test_every_account_gets_the_answers_of_the_table(guarded: Server) -> None:
    objects, wrong = make(guarded), []
    for line in LINES:
        for account, expected in zip(ASKING, line.expected, strict=True):
            for api in ("/api", "/ajax-api") if account in (None, STRANGER) and line.place != "/" else ("/api",):
                method, target, body = line.filled_in(objects, api)
                status, message = send(guarded, account, method, target, body)
                if not is_as_expected(expected, status, message):
                    wrong.append((account, expected, method, target, status, message[:150]))
                if status < 300 and HARMS.search(f"{method} {line.target}"):
                    objects = make(guarded)
    assert wrong == [], "\n".join(map(str, wrong))


def test_every_route_of_the_front_has_a_line() -> None:
    lines = {(line.method, line.place, re.split(r"[?]", line.target)[0]) for line in LINES}
    missing = []
    for version, table in (("2", PROGRAMS), ("3", ROLES), ("a", ARTIFACTS), ("/", PAGES)):
        for row in table.strip().splitlines():
            methods, *paths = row.split()
            for method in methods.split(","):
                for path in paths:
                    pattern = re.sub(r"\\\{\w+(\\\.)*\\\}", ".+", re.escape(path))
                    listed = any((m, p) == (method, version) and re.fullmatch(pattern, t) for m, p, t in lines)
                    missing += [] if listed else [(method, path)]
    assert missing == [], "add each account's answer to the table"


# Cases beyond the table


def test_names_of_another_team_are_indistinguishable_from_unused_names(guarded: Server) -> None:
    name = make(guarded).name
    for endpoint in (
        "registered-models/get?name=",
        "experiments/get-by-name?experiment_name=",
        "model-versions/get?version=1&name=",
    ):
        theirs, nothing = (
            ask(guarded, STRANGER, "GET", endpoint + searched_name) for searched_name in (name, "no" + name)
        )
        assert theirs[0] == nothing[0] == 404
        assert theirs[1].replace(name, "") == nothing[1].replace("no" + name, "")


@pytest.mark.parametrize(
    "endpoint",
    [
        "/api/2.0/mlflow/runs/get?run_id={run}",
        "/api/2.0/mlflow/metrics/get-history?run_id={run}&metric_key=loss",
        "/ajax-api/2.0/mlflow/metrics/get-history-bulk?run_id={run}&metric_key=loss",
        "/api/2.0/mlflow/metrics/get-history-bulk-interval?run_ids={run}&metric_key=loss&max_results=5",
        "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?run_ids={run}&metric_key=loss&max_results=5",
    ],
)
def test_a_run_of_another_team_is_indistinguishable_from_none(guarded: Server, endpoint: str) -> None:
    run = make(guarded).run
    theirs, none = (send(guarded, STRANGER, "GET", endpoint.format(run=named), None) for named in (run, "0" * 32))
    assert theirs[0] == 403
    assert theirs == none


def test_no_version_of_one_team_points_to_files_of_another(guarded: Server) -> None:
    objects, own_name = make(guarded), f"speech-{secrets.token_hex(4)}"
    done(ask(guarded, STRANGER, "POST", "registered-models/create", name=own_name))
    for source in (objects.files, f"models:/{objects.logged}", f"models:/{objects.name}/1"):
        status, message = ask(guarded, STRANGER, "POST", "model-versions/create", name=own_name, source=source)
        assert (status, "that you may read" in message) == (400, True), message


def test_who_may_only_read_files_makes_no_version_of_them(guarded: Server) -> None:
    """Its promotion would keep the other team's run as it is."""
    objects, own_name = make(guarded), f"reading-{secrets.token_hex(4)}"
    done(ask(guarded, STRANGER, "POST", "registered-models/create", name=own_name))
    right = {"username": STRANGER, "resource_type": "experiment", "resource_id": objects.experiment}
    done(ask(guarded, ADMIN, "POST", "users/permissions/grant", "api/3.0", **right, permission="READ"))
    for source in (objects.files, f"models:/{objects.logged}"):
        status, message = ask(guarded, STRANGER, "POST", "model-versions/create", name=own_name, source=source)
        assert (status, "that this account cannot write to" in message) == (400, True), message


def test_the_error_about_a_name_of_another_team_gives_no_more(guarded: Server) -> None:
    objects = make(guarded)
    for endpoint in ("registered-models/create", "experiments/create"):
        status, message = ask(guarded, STRANGER, "POST", endpoint, name=objects.name)
        assert (status, message) == (403, f"the name {objects.name} is taken on this server; choose another")


def test_a_name_that_became_free_is_the_next_teams_alone(guarded: Server) -> None:
    name, new_name = make(guarded).name, f"renamed-{secrets.token_hex(4)}"
    done(ask(guarded, TRAINER, "POST", "registered-models/rename", name=name, new_name=new_name))
    done(ask(guarded, READER, "GET", f"registered-models/get?name={new_name}"))
    for free, deleted in ((name, None), (new_name, new_name)):
        if deleted:
            done(ask(guarded, TRAINER, "DELETE", "registered-models/delete", name=deleted))
        done(ask(guarded, STRANGER, "POST", "registered-models/create", name=free))
        for account in (TRAINER, READER, REVIEWER):
            assert ask(guarded, account, "GET", f"registered-models/get?name={free}")[0] == 404


def test_a_reviewer_of_one_team_promotes_nothing_of_another(guarded: Server) -> None:
    own_name = f"speech-{secrets.token_hex(4)}"
    done(ask(guarded, STRANGER, "POST", "registered-models/create", name=own_name))
    assert ask(guarded, REVIEWER, "POST", ALIAS, name=own_name, alias="champion", version="1")[0] == 404


def test_an_experiment_with_a_number_that_was_used_before_is_its_own_teams_alone(guarded: Server) -> None:
    created = done(ask(guarded, TRAINER, "POST", "experiments/create", name=secrets.token_hex(6)))["experiment_id"]
    with closing(sqlite3.connect(guarded.folder / "server.db", timeout=30)) as database, database:
        database.execute("delete from experiments where experiment_id = ?", (created,))
    again = done(ask(guarded, STRANGER, "POST", "experiments/create", name=secrets.token_hex(6)))["experiment_id"]
    assert again == created
    done(ask(guarded, STRANGER, "GET", f"experiments/get?experiment_id={again}"))
    assert ask(guarded, TRAINER, "GET", f"experiments/get?experiment_id={again}")[0] == 403


def test_objects_of_an_admin_belong_to_no_team(guarded: Server) -> None:
    name = f"admins-{secrets.token_hex(4)}"
    done(ask(guarded, ADMIN, "POST", "registered-models/create", name=name))
    assert {
        ask(guarded, account, "GET", f"registered-models/get?name={name}")[0] for account in (TRAINER, STRANGER)
    } == {404}
