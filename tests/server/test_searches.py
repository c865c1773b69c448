"""Answers of searches to mallory of the team speech, about objects of the team vision and about nothing."""

import json
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.registry.submitted import Server
from tests.server.accounts import ADMIN, STRANGER, TRAINER, ask, done, make_accounts
from tests.server.test_tenancy import send

SECRET = "hunter7"
TAGS = [{"key": "secret", "value": SECRET}]


def search(server: Server, account: str, endpoint: str, **parameters: Any) -> Any:
    """By a GET for models and versions, by a POST for experiments and logged models."""
    if endpoint.startswith(("registered", "model-")):
        return done(ask(server, account, "GET", f"{endpoint}/search?{urlencode(parameters)}"))
    return done(ask(server, account, "POST", f"{endpoint}/search", **parameters))


def pages(server: Server, account: str, endpoint: str, kind: str, **parameters: Any) -> Iterator[list[Any]]:
    token = ""
    while True:
        result = search(server, account, endpoint, **parameters, **({"page_token": token} if token else {}))
        yield result.get(kind, [])
        token = result.get("next_page_token", "")
        if not token:
            return


def experiment(server: Server, account: str, name: str) -> str:
    return str(done(ask(server, account, "POST", "experiments/create", name=name, tags=TAGS))["experiment_id"])


def model(server: Server, account: str, name: str, versions: int = 0) -> None:
    done(ask(server, account, "POST", "registered-models/create", name=name, tags=TAGS))
    if versions:
        number = experiment(server, account, name)
        run = done(ask(server, account, "POST", "runs/create", experiment_id=number))["run"]["info"]
        for _ in range(versions):
            source = {"source": run["artifact_uri"], "run_id": run["run_id"]}
            done(ask(server, account, "POST", "model-versions/create", name=name, **source, tags=TAGS))


@pytest.fixture(scope="module")
def nemo(guarded: Server) -> str:
    """An account of no team."""
    make_accounts(guarded, "nemo")
    return "nemo"


def test_a_search_for_versions_of_another_team_is_answered_as_one_for_nothing(guarded: Server, nemo: str) -> None:
    name = f"vision-{secrets.token_hex(6)}"
    model(guarded, TRAINER, name, versions=2)
    for filtered in (f"name = '{name}'", f"name LIKE '{name[:-1]}%'", f"tags.`secret` LIKE 'h%' AND name = '{name}'"):
        for account in (STRANGER, nemo):
            assert search(guarded, account, "model-versions", filter=filtered, max_results=1) == {}
        result = search(guarded, TRAINER, "model-versions", filter=filtered, max_results=1)
        assert len(result["model_versions"]) == 1
        assert result["next_page_token"]


def test_a_page_of_graphql_tells_nothing_of_versions_of_another_team(guarded: Server) -> None:
    name = f"vision-{secrets.token_hex(6)}"
    model(guarded, TRAINER, name, versions=2)
    fields = f"(input: {{filter: \"name = '{name}'\", maxResults: 1}}) {{ modelVersions {{ name }} nextPageToken }}"
    body = json.dumps({"query": f"query {{ mlflowSearchModelVersions{fields} }}"}).encode()
    answers = {}
    for account in (STRANGER, TRAINER):
        status, message = send(guarded, account, "POST", "/graphql", body)
        assert status == 200
        answers[account] = json.loads(message)["data"]["mlflowSearchModelVersions"]
    assert answers[STRANGER] == {"modelVersions": [], "nextPageToken": ""}
    assert answers[TRAINER]["modelVersions"] == [{"name": name}]
    assert answers[TRAINER]["nextPageToken"]


@pytest.mark.parametrize(
    ("endpoint", "kind", "order"),
    [("registered-models", "registered_models", {}), ("experiments", "experiments", {"order_by": ["name ASC"]})],
)
def test_a_token_counts_nothing_of_another_team(guarded: Server, endpoint: str, kind: str, order: Any) -> None:
    """In the order of their names there is one of the other team before each one of its own, and one at the end."""
    word = secrets.token_hex(4)
    for index in range(7):
        account = TRAINER if index % 2 == 0 else STRANGER
        make = model if kind == "registered_models" else experiment
        make(guarded, account, f"{word}-{index}")
    output, alone = (
        [
            ([entry["name"] for entry in result], token)
            for result, token in with_tokens(
                guarded, endpoint, kind, filter=f"name {name_filter}", max_results=1, **order
            )
        ]
        for name_filter in (f"LIKE '{word}-%'", f"LIKE '{word}-%' AND name != '{word}-0'")
    )
    assert [names for names, _ in output] == [[f"{word}-{index}"] for index in (1, 3, 5)]
    assert output == alone


def with_tokens(server: Server, endpoint: str, kind: str, **parameters: Any) -> Iterator[tuple[list[Any], str]]:
    token = ""
    while True:
        result = search(server, STRANGER, endpoint, **parameters, **({"page_token": token} if token else {}))
        token = result.get("next_page_token", "")
        yield result.get(kind, []), token
        if not token:
            return


def test_a_token_of_logged_models_counts_nothing_of_another_team(guarded: Server) -> None:
    own_experiment, theirs = (experiment(guarded, account, secrets.token_hex(6)) for account in (STRANGER, TRAINER))
    for account, number in (
        (TRAINER, theirs),
        (STRANGER, own_experiment),
        (TRAINER, theirs),
        (STRANGER, own_experiment),
        (TRAINER, theirs),
    ):
        done(ask(guarded, account, "POST", "logged-models", experiment_id=number, name="a", tags=TAGS))
    result = list(
        pages(guarded, STRANGER, "logged-models", "models", experiment_ids=[own_experiment, theirs], max_results=1)
    )
    assert [len(page) for page in result] == [1, 1]
    assert search(guarded, STRANGER, "logged-models", experiment_ids=[theirs], max_results=1) == {}


def test_a_right_to_all_models_but_one_is_searched_as_such(guarded: Server) -> None:
    make_accounts(guarded, "auditor")
    names = [f"vision-{secrets.token_hex(6)}" for _ in range(3)]
    for name in names:
        model(guarded, TRAINER, name, versions=1)
    for resource, permission in (("*", "READ"), (names[0], "DENY")):
        right = {
            "username": "auditor",
            "resource_type": "registered_model",
            "resource_id": resource,
            "permission": permission,
        }
        done(ask(guarded, ADMIN, "POST", "users/permissions/grant", "api/3.0", **right))
    for endpoint, kind in (("registered-models", "registered_models"), ("model-versions", "model_versions")):
        result = {
            entry["name"] for page in pages(guarded, "auditor", endpoint, kind, max_results=100) for entry in page
        }
        assert result & set(names) == set(names[1:])
        assert search(guarded, "auditor", endpoint, filter=f"name = '{names[0]}'", max_results=1) == {}
