"""Who may promote and change what was promoted, and whose files count: a real server, with requests of each account."""

import ast
import secrets
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.registry.submitted import Pipeline, Server
from tests.server.accounts import (
    ADMIN,
    ALIAS,
    APIS,
    READER,
    REVIEWER,
    STRANGER,
    TRAINER,
    ask,
    done,
    standing,
    with_account,
)
from understudy.registry.champion import champion
from understudy.registry.client import server_at
from understudy.registry.register import is_registered


def experiment(server: Server) -> str:
    """A new experiment of the pipeline's account."""
    created = ask(server, TRAINER, "POST", "experiments/create", name=f"experiment-{secrets.token_hex(4)}")
    return str(done(created)["experiment_id"])


@pytest.fixture
def model(guarded: Server) -> str:
    """A model that the pipeline's account made: version 1 is the champion, version 2 the challenger."""
    name = f"model-{secrets.token_hex(4)}"
    done(ask(guarded, TRAINER, "POST", "registered-models/create", name=name))
    run = done(ask(guarded, TRAINER, "POST", "runs/create", experiment_id=experiment(guarded)))["run"]["info"]
    source = {"source": f"{run['artifact_uri']}/model", "run_id": run["run_id"]}
    for _ in range(2):
        done(ask(guarded, TRAINER, "POST", "model-versions/create", name=name, **source))
    done(ask(guarded, TRAINER, "POST", ALIAS, name=name, alias="challenger", version="2"))
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=name, alias="champion", version="1"))
    return name


def test_the_pipeline_registers_its_student_and_cannot_promote_it(
    guarded: Server, make_pipeline: Callable[..., Pipeline]
) -> None:
    uri = with_account(guarded, TRAINER)
    assert champion(uri, "digits") is None
    pipeline = make_pipeline(uri)
    created = pipeline.register()
    assert server_at(uri).aliases("digits") == {"challenger": created.version}
    status, message = ask(guarded, TRAINER, "POST", ALIAS, name="digits", alias="champion", version="1")
    assert status == 403
    assert message.startswith("pipeline may not move the alias champion of digits")
    assert REVIEWER in message
    done(ask(guarded, REVIEWER, "POST", ALIAS, name="digits", alias="champion", version="1"))
    result = champion(with_account(guarded, READER), "digits")
    assert result is not None
    assert is_registered(uri, created, result.digest)
    again = pipeline.register(run=pipeline.new_run(), weights=b"better")
    assert server_at(uri).aliases("digits") == {"challenger": again.version, "champion": created.version}


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
    ],
    ids=["moved", "spelled", "removed", "version", "version-spelled", "model", "renamed"],
)
@pytest.mark.parametrize("account", [TRAINER, READER])
def test_no_request_of_other_accounts_moves_or_removes_the_champion(
    guarded: Server, model: str, account: str, method: str, endpoint: str, body: dict[str, str], api: str
) -> None:
    status, message = ask(guarded, account, method, endpoint, api, name=model, **body)
    assert status == 403
    assert message.startswith(f"{account} may not ")
    assert "champion" in message
    assert message.endswith("reviewers of the team vision are rita, somebody (UNDERSTUDY_ACCOUNTS of the server).")
    assert standing(guarded, model) == {"champion": "1", "challenger": "2"}


def test_stages_are_not_aliases(guarded: Server, model: str) -> None:
    stage = {"version": "2", "stage": "Production", "archive_existing_versions": "true"}
    ask(guarded, TRAINER, "POST", "model-versions/transition-stage", name=model, **stage)
    assert standing(guarded, model) == {"champion": "1", "challenger": "2"}


def test_the_pipeline_may_change_models_without_a_champion(guarded: Server, model: str) -> None:
    done(ask(guarded, TRAINER, "DELETE", ALIAS, name=model, alias="challenger"))
    done(ask(guarded, TRAINER, "DELETE", "model-versions/delete", name=model, version="2"))
    assert standing(guarded, model) == {"champion": "1"}
    unpromoted = f"{model} without champion"
    done(ask(guarded, TRAINER, "POST", "registered-models/create", name=unpromoted))
    done(ask(guarded, TRAINER, "POST", "registered-models/rename", name=unpromoted, new_name=f"{unpromoted}, renamed"))
    done(ask(guarded, TRAINER, "DELETE", "registered-models/delete", name=f"{unpromoted}, renamed"))


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


def test_missing_objects_are_answered_as_mlflow_does(guarded: Server) -> None:
    for endpoint in ("registered-models/delete", "model-versions/delete"):
        status, message = ask(guarded, TRAINER, "DELETE", endpoint, name="unheard of", version="1")
        assert (status, "champion" in message) == (404, False)


def test_a_digest_is_given_with_the_version_and_stays(guarded: Server, model: str) -> None:
    """Else a model whose verdict is too old for the policy could be registered once more as a young one."""
    run = done(ask(guarded, TRAINER, "POST", "runs/create", experiment_id=experiment(guarded)))["run"]["info"]
    source = {"source": run["artifact_uri"], "run_id": run["run_id"]}
    digest, version_tags = "understudy.digest", {"understudy.digest": "e" * 64}
    tag_list = [{"key": key, "value": value} for key, value in version_tags.items()]
    created = done(ask(guarded, TRAINER, "POST", "model-versions/create", name=model, **source, tags=tag_list))
    version = created["model_version"]["version"]
    for number in (version, "2"):  # one that has a digest, and one that has none
        named = {"name": model, "version": number, "key": digest}
        answers = [
            ask(guarded, TRAINER, "POST", "model-versions/set-tag", **named, value="0" * 64),
            ask(guarded, TRAINER, "DELETE", "model-versions/delete-tag", **named),
        ]
        assert {(status, "cannot be changed" in message) for status, message in answers} == {(400, True)}
    assert tags(guarded, model, version) == version_tags
    done(ask(guarded, TRAINER, "POST", "model-versions/set-tag", name=model, version=version, key="a", value="b"))


# Promoted versions

CHANGES = [
    ("POST", "model-versions/set-tag", {"version": "1", "key": "understudy.digest", "value": "another"}),
    ("DELETE", "model-versions/delete-tag", {"version": "1", "key": "understudy.promoted"}),
    ("PATCH", "model-versions/update", {"version": "1", "description": "better than ever"}),
    ("POST", "model-versions/transition-stage", {"version": "1", "stage": "Archived"}),
    ("DELETE", "model-versions/delete", {"version": "1"}),
    ("POST", "registered-models/set-tag", {"key": "understudy.promoted", "value": "by nobody"}),
    ("DELETE", "registered-models/delete-tag", {"key": "understudy.promoted"}),
    ("POST", "registered-models/set-tag", {"key": "mlflow.prompt.is_prompt", "value": "true"}),
    ("PATCH", "registered-models/update", {"description": "better than ever"}),
    ("POST", "registered-models/rename", {"new_name": "another"}),
    ("DELETE", "registered-models/delete", {}),
]


def tags(server: Server, name: str, version: str) -> dict[str, str]:
    result = done(ask(server, READER, "GET", f"model-versions/get?name={name}&version={version}"))["model_version"]
    return {tag["key"]: tag["value"] for tag in result.get("tags", ())}


PROMOTED = "understudy.promoted"


@pytest.mark.parametrize("still", [True, False], ids=["champion", "was-champion"])
def test_no_account_that_made_a_promoted_version_changes_it(guarded: Server, model: str, still: bool) -> None:
    if not still:  # a roll-back would need it as it was
        done(ask(guarded, REVIEWER, "POST", ALIAS, name=model, alias="champion", version="2"))
        done(ask(guarded, REVIEWER, "DELETE", ALIAS, name=model, alias="champion"))
    before = tags(guarded, model, "1")
    assert before["understudy.promoted"].startswith(f"by {REVIEWER} at 20")
    for account in (TRAINER, READER):
        for method, endpoint, body in CHANGES:
            status, message = ask(guarded, account, method, endpoint, name=model, **body)
            assert status == 403, (endpoint, message)
            assert "promoted" in message
    assert tags(guarded, model, "1") == before


def test_a_promoted_version_is_not_archived_for_another(guarded: Server, model: str) -> None:
    stage = {"version": "2", "stage": "Production", "archive_existing_versions": True}
    status, message = ask(guarded, TRAINER, "POST", "model-versions/transition-stage", name=model, **stage)
    assert (status, "archive the other versions" in message) == (403, True)


def test_the_champion_of_an_older_server_is_marked_when_it_goes(guarded: Server, model: str) -> None:
    done(ask(guarded, ADMIN, "DELETE", "model-versions/delete-tag", name=model, version="1", key=PROMOTED))
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=model, alias="Champion", version="2"))
    assert {PROMOTED} == tags(guarded, model, "1").keys() == tags(guarded, model, "2").keys()


def test_a_removed_alias_that_was_not_there_promotes_nothing(guarded: Server, model: str) -> None:
    unpromoted = f"{model}-without-champion"
    done(ask(guarded, TRAINER, "POST", "registered-models/create", name=unpromoted))
    ask(guarded, REVIEWER, "DELETE", ALIAS, name=unpromoted, alias="champion")
    done(ask(guarded, TRAINER, "DELETE", "registered-models/delete", name=unpromoted))


def test_a_version_that_does_not_exist_leaves_no_mark_behind(guarded: Server, model: str) -> None:
    assert ask(guarded, REVIEWER, "POST", ALIAS, name=model, alias="champion", version="99")[0] == 404
    assert standing(guarded, model) == {"champion": "1", "challenger": "2"}
    assert PROMOTED not in tags(guarded, model, "2")


@pytest.mark.parametrize("api", ["api/3.0", "ajax-api/3.0"])
def test_who_owns_a_model_takes_no_reviewers_rights_to_it_away(guarded: Server, model: str, api: str) -> None:
    right = {"username": REVIEWER, "resource_type": "registered_model", "resource_id": model, "permission": "DENY"}
    for endpoint in ("users/permissions/grant", "users/permissions/revoke"):
        assert ask(guarded, TRAINER, "POST", endpoint, api, **right)[0] == 403
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=model, alias="champion", version="2"))


def test_a_version_that_was_not_promoted_is_its_accounts_own(guarded: Server, model: str) -> None:
    done(ask(guarded, TRAINER, "POST", "model-versions/set-tag", name=model, version="2", key="a", value="b"))
    done(ask(guarded, TRAINER, "PATCH", "model-versions/update", name=model, version="2", description="c"))
    assert tags(guarded, model, "2") == {"a": "b"}


def test_only_the_server_marks_promoted_versions(guarded: Server, model: str) -> None:
    mark = {"key": "understudy.promoted", "value": "by rita"}
    status, message = ask(guarded, TRAINER, "POST", "model-versions/set-tag", name=model, version="2", **mark)
    assert (status, "may not set the tag understudy.promoted" in message) == (403, True)
    for endpoint, body in (
        ("registered-models/create", {"name": f"{model}-marked"}),
        ("model-versions/create", {"name": model, "source": "models:/m-1"}),
    ):
        status, message = ask(guarded, TRAINER, "POST", endpoint, **body, tags=[mark])
        assert (status, message) == (400, "only the server sets the tag understudy.promoted")


@pytest.mark.parametrize("alias", ["champıon", "champi0n", "champoin", "champion\n"])
def test_an_alias_that_looks_like_the_champion_is_refused(guarded: Server, model: str, alias: str) -> None:
    status, message = ask(guarded, TRAINER, "POST", ALIAS, name=model, alias=alias, version="2")
    assert status == 400
    assert "look" in message
    assert standing(guarded, model) == {"champion": "1", "challenger": "2"}


def test_other_aliases_are_free(guarded: Server, model: str) -> None:
    for alias in ("champion-v2", "champion-of-june", "staging", "champ"):
        done(ask(guarded, TRAINER, "POST", ALIAS, name=model, alias=alias, version="2"))


# Whose files

ELSEWHERE = [
    "s3://somebody-else/model",
    "gs://bucket/model",
    "https://example.com/model",
    "mlflow-artifacts://example.com/1/model",
    "mlflow-artifacts:////example.com/1/model",
    "mlflow-artifacts:/../../etc",
    "mlflow-artifacts:/1/%2e%2e/model",
    "RUNS:/0123/model",
    " runs:/0123/model",
    "runs:/0123/model",
    "models:/nobody/1",
    "models:/m-0123",
    "file:///etc",
    "/etc",
    "dbfs:/model",
    "http://[",
]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("address", ELSEWHERE)
def test_files_from_elsewhere_are_refused(guarded: Server, model: str, address: str, api: str) -> None:
    status, message = ask(guarded, TRAINER, "POST", "model-versions/create", api, name=model, source=address)
    assert (status, message.startswith("source: ")) == (400, True), message
    named = {"name": secrets.token_hex(4), "artifact_location": address}
    status, message = ask(guarded, TRAINER, "POST", "experiments/create", api, **named)
    assert (status, message.startswith("artifact_location: ")) == (400, True), message


def test_an_older_experiment_that_lies_elsewhere_gives_no_version(guarded: Server, model: str) -> None:
    arguments = {"name": secrets.token_hex(4), "artifact_location": "s3://somebody-else/runs"}
    created = done(ask(guarded, ADMIN, "POST", "experiments/create", **arguments))["experiment_id"]
    run = done(ask(guarded, ADMIN, "POST", "runs/create", experiment_id=created))["run"]["info"]
    source = {"source": f"{run['artifact_uri']}/model", "run_id": run["run_id"]}
    status, message = ask(guarded, TRAINER, "POST", "model-versions/create", name=model, **source)
    assert (status, "lies outside of this server's artifacts" in message) == (400, True)


@pytest.mark.parametrize("tag", ["mlflow.prompt.is_prompt", "mlflow.prompt.text"])
def test_tags_that_hide_a_model_or_version_from_every_list_are_refused(guarded: Server, tag: str) -> None:
    model, marked = secrets.token_hex(4), {"key": tag, "value": "true"}
    done(ask(guarded, TRAINER, "POST", "registered-models/create", name=model))
    run = done(ask(guarded, TRAINER, "POST", "runs/create", experiment_id=experiment(guarded)))["run"]["info"]
    source = {"name": model, "source": run["artifact_uri"], "run_id": run["run_id"]}
    done(ask(guarded, TRAINER, "POST", "model-versions/create", **source))
    for endpoint, named in (
        ("registered-models/create", {"name": secrets.token_hex(4), "tags": [marked]}),
        ("model-versions/create", {**source, "tags": [marked]}),
        ("registered-models/set-tag", {"name": model, **marked}),
        ("model-versions/set-tag", {"name": model, "version": "1", **marked}),
    ):
        status, message = ask(guarded, TRAINER, "POST", endpoint, **named)
        assert (status, message) == (400, f"tags: {tag} is for prompts, and this server has no prompts")


def test_files_that_are_looked_up_anew_become_no_version_and_no_champion(guarded: Server) -> None:
    """MLflow reads runs:/RUN/NAME as the run's logged model NAME, too, which whoever writes to the run makes later."""
    name = f"loose-{secrets.token_hex(4)}"
    created = done(ask(guarded, TRAINER, "POST", "experiments/create", name=name))["experiment_id"]
    run = done(ask(guarded, TRAINER, "POST", "runs/create", experiment_id=created))["run"]["info"]["run_id"]
    done(ask(guarded, TRAINER, "POST", "registered-models/create", name=name))
    loose = {"name": name, "source": f"runs:/{run}/code", "run_id": run}
    status, message = ask(guarded, TRAINER, "POST", "model-versions/create", **loose)
    assert (status, "is resolved again whenever it is read" in message) == (400, True)
    done(ask(guarded, ADMIN, "POST", "model-versions/create", **loose))  # as there may be one from before
    status, message = ask(guarded, REVIEWER, "POST", ALIAS, name=name, alias="champion", version="1")
    assert (status, "create a version that names the files themselves" in message) == (400, True)
    refusal = ask(guarded, STRANGER, "POST", ALIAS, name=name, alias="champion", version="1")
    assert "resolved again" not in refusal[1], "who may not promote learns nothing of it"


def test_a_copy_of_a_version_is_a_source(guarded: Server, model: str) -> None:
    for source in (f"models:/{model}/1", f"models:/{model}@champion"):
        done(ask(guarded, TRAINER, "POST", "model-versions/create", name=model, source=source))


def test_a_run_of_somebody_else_is_no_source_without_its_id(guarded: Server, model: str) -> None:
    source = "mlflow-artifacts:/0/0123/artifacts/model"
    assert ask(guarded, TRAINER, "POST", "model-versions/create", name=model, source=source)[0] == 400


# Assumptions about MLflow

METHODS = {
    "set_registered_model_alias",
    "delete_registered_model_alias",
    "delete_model_version",
    "delete_registered_model",
    "rename_registered_model",
    "set_model_version_tag",
    "delete_model_version_tag",
    "update_model_version",
    "transition_model_version_stage",
    "set_registered_model_tag",
    "delete_registered_model_tag",
}


def test_mlflow_reaches_promoted_versions_only_through_guarded_requests() -> None:
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
    assert handlers == {f"_{method}".replace("_transition_model_version_", "_transition_") for method in METHODS}
    assert {uses[name] for name in handlers} == {1}, "named once, in the table of requests"
