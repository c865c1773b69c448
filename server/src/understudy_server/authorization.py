"""Authorization rules beyond MLflow's permissions, for promotion, promoted versions, and the source of files.

MLflow's app `basic-auth` authorizes edits of a model, not of single aliases: an account that may set `challenger` may
set `champion`, and the creator of a model may do anything with it. It also lets a version point anywhere, even to a
foreign bucket, which the server would read with its credentials. So such requests are checked here first, at all
addresses in MLflow's tables. Admins bypass the rules.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, PERMISSION_DENIED
from mlflow.protos.model_registry_pb2 import (
    CreateModelVersion,
    CreateRegisteredModel,
    DeleteModelVersion,
    DeleteModelVersionTag,
    DeleteRegisteredModel,
    DeleteRegisteredModelAlias,
    DeleteRegisteredModelTag,
    ModelRegistryService,
    RenameRegisteredModel,
    SetModelVersionTag,
    SetRegisteredModelAlias,
    SetRegisteredModelTag,
    TransitionModelVersionStage,
    UpdateModelVersion,
    UpdateRegisteredModel,
)
from mlflow.protos.service_pb2 import CreateExperiment, MlflowService
from mlflow.server import auth, handlers
from mlflow.server.auth import routes

from understudy.registry.names import CHAMPION, DIGEST
from understudy_server.confusables import lookalike
from understudy_server.ownership import team_of
from understudy_server.promotion import PROMPT, SERVERS, found_in_registry, is_champion, is_promoted
from understudy_server.retention import lineage
from understudy_server.sign_in import accounts, sender
from understudy_server.teams import SETTING

LOOSE = (
    "{} is looked up anew whenever it is read, so its files can be changed; make a version that names the files "
    "themselves (mlflow-artifacts:/EXPERIMENT/RUN/artifacts/PATH), as mlflow.register_model does"
)
OURS = re.compile(r"mlflow-artifacts:/(?!/)[^?#%\\\s]+")  # a path on this server, in canonical form


class Rule(NamedTuple):
    """The description of a reviewer-only change, or nothing, and the check that a reviewer must also pass."""

    change: Callable[[Any], str]
    reviewer: Callable[[], bool] | None = None  # None: MLflow's check


# Changes for reviewers only


def _set(message: Any) -> str:
    return f"move the alias {CHAMPION} of {message.name}" if is_champion(message.alias) else ""


def _unset(message: Any) -> str:
    return f"remove the alias {CHAMPION} of {message.name}" if is_champion(message.alias) else ""


def _version(verb: str, message: Any) -> str:
    found = found_in_registry("get_model_version", message.name, message.version)
    if found is None or not is_promoted(found):
        return ""
    return f"{verb} version {found.version} of {message.name}, which was promoted to {CHAMPION}"


def _stage(message: Any) -> str:
    if message.archive_existing_versions and _model("archive", message):
        return f"archive the other versions of {message.name}, of which one was promoted to {CHAMPION}"
    return _version("change", message)


def _model(verb: str, message: Any) -> str:
    found = found_in_registry("get_registered_model", message.name)
    if found is None or not is_promoted(found):
        return ""
    return f"{verb} {message.name}, of which a version was promoted to {CHAMPION}"


def _mark_of_version(message: Any) -> str:
    return f"set the tag {message.key}" if message.key in SERVERS else _version("change", message)


def _mark_of_model(message: Any) -> str:
    if message.key in SERVERS:
        return f"change the tag {message.key} of {message.name}"
    return _model("change", message)


def _may_promote() -> bool:
    """Whether a reviewer may read the new champion, whose files must lie where they can be retained."""
    if not auth.validate_can_read_model_or_prompt_version():
        return False
    message = handlers._get_request_message(SetRegisteredModelAlias())
    if found_in_registry("get_model_version", message.name, message.version):
        registry = handlers._get_model_registry_store()
        place = str(registry.get_model_version_download_uri(message.name, message.version))
        if not OURS.fullmatch(place):  # a version from before the rule for sources
            said = f"version {message.version} of {message.name}: {LOOSE.format(place)}"
            raise MlflowException(said, INVALID_PARAMETER_VALUE)
    return True


# To move the champion, a reviewer must be able to read the model, not to edit it.
RULES: dict[type[object], Rule] = {
    SetRegisteredModelAlias: Rule(_set, _may_promote),
    DeleteRegisteredModelAlias: Rule(_unset, auth.validate_can_read_model_or_prompt_version),
    DeleteModelVersion: Rule(partial(_version, "delete")),
    UpdateModelVersion: Rule(partial(_version, "change")),
    TransitionModelVersionStage: Rule(_stage),
    SetModelVersionTag: Rule(_mark_of_version),
    DeleteModelVersionTag: Rule(partial(_version, "change")),
    DeleteRegisteredModel: Rule(partial(_model, "delete")),
    RenameRegisteredModel: Rule(partial(_model, "rename")),
    UpdateRegisteredModel: Rule(partial(_model, "change")),
    SetRegisteredModelTag: Rule(_mark_of_model),
    DeleteRegisteredModelTag: Rule(_mark_of_model),
}


# Changes for admins only


def _placed(message: Any) -> str:
    if not message.artifact_location:
        return ""
    return "artifact_location: this server has a place for the files of every experiment; leave it out"


def _source(message: Any) -> str:
    if message.source.lower().startswith("runs:"):
        return f"source: {LOOSE.format(message.source)}"
    unknown = f"source: {message.source} names no run, logged model or version of this server that you may read"
    try:
        place = _place(message.source)
    except (MlflowException, ValueError):
        return unknown
    if not OURS.fullmatch(place) or ".." in place.split("/"):
        return (
            f"source: {message.source} lies outside of this server's artifacts; log the files to a run, and name that"
        )
    if not _permission(place.removeprefix("mlflow-artifacts:/").partition("/")[0]).can_read:
        return unknown
    return _evidence(message) or _foreign(message, place)


def _foreign(message: Any, place: str) -> str:
    """Refuse a lineage that the account cannot write to: a promotion makes all of it read-only."""
    things = lineage(place, message.run_id)
    if all(_permission(name).can_update for kind, name in things if kind == "experiment"):
        return ""
    return (
        f"source: {message.source} comes from a run or logged model that this account cannot write to; "
        "log the files to a run of its own, and name that"
    )


def _permission(experiment: str) -> Any:
    return auth._get_experiment_permission(experiment, sender().name)


def _evidence(message: Any) -> str:
    """Refuse a run that the account cannot write to: a version's run is its evidence, and read-only once promoted."""
    if not message.run_id or auth.validate_can_update_run():
        return ""
    return f"run_id: {message.run_id} is a run that this account cannot write to; name one of its own"


def _place(source: str) -> str:
    """The address of a source's files; for a logged model or version, the one that the server has recorded."""
    scheme, _, rest = source.partition(":")
    first = rest.strip("/").partition("/")[0]
    tracking = handlers._get_tracking_store()
    if scheme == "models" and "/" not in rest.strip("/") and "@" not in rest:
        return str(tracking.get_logged_model(first).artifact_location)
    if scheme == "models":
        name, version = _version_of(rest.strip("/"))
        return str(handlers._get_model_registry_store().get_model_version_download_uri(name, version))
    return source


def _version_of(named: str) -> tuple[str, str]:
    """The model and version of NAME/VERSION or NAME@ALIAS."""
    name, at, alias = named.partition("@")
    if at:
        return name, str(handlers._get_model_registry_store().get_model_version_by_alias(name, alias).version)
    name, _, version = named.partition("/")
    return name, version


def _marked(message: Any) -> str:
    said = next((f"only the server sets the tag {tag.key}" for tag in message.tags if tag.key in SERVERS), "")
    return said or next(filter(None, map(_hidden, message.tags)), "")


def _hidden(tag: Any) -> str:
    """Refuse tags of prompts: MLflow omits prompts from its lists, so neither gc nor reviewers would see the model."""
    return f"tags: {tag.key} is for prompts, which this server has none of" if tag.key.startswith(PROMPT) else ""


def _dated(message: Any) -> str:
    """Refuse changes to the digest: promotion policy takes a model's age from its first version with that digest."""
    return f"the tag {DIGEST} is set when a version is made, and stays as it is" if message.key == DIGEST else ""


FORBIDDEN: dict[type[object], Callable[[Any], str]] = {
    SetRegisteredModelAlias: lambda message: lookalike(message.alias),
    CreateRegisteredModel: _marked,
    CreateModelVersion: lambda message: _marked(message) or _source(message),
    CreateExperiment: _placed,
    SetRegisteredModelTag: _hidden,
    SetModelVersionTag: lambda message: _hidden(message) or _dated(message),
    DeleteModelVersionTag: _dated,
}


RIGHTS = (
    routes.GRANT_USER_PERMISSION,
    routes.AJAX_GRANT_USER_PERMISSION,
    routes.REVOKE_USER_PERMISSION,
    routes.AJAX_REVOKE_USER_PERMISSION,
)


def guard() -> None:
    """Run the rules before MLflow's check of every request that they cover."""
    for path in RIGHTS:  # a model's owner could revoke its reviewers' permissions
        auth.BEFORE_REQUEST_VALIDATORS[path, "POST"] = auth.sender_is_admin
    guarded = set()
    for service in (ModelRegistryService, MlflowService):
        for path, kind, methods in handlers.get_service_endpoints(service, lambda kind: kind):
            if kind not in RULES and kind not in FORBIDDEN:
                continue
            guarded.add(kind)
            for method in methods:
                checked = auth.BEFORE_REQUEST_VALIDATORS[path, method]
                auth.BEFORE_REQUEST_VALIDATORS[path, method] = partial(_allowed, kind, checked)
    assert guarded == RULES.keys() | FORBIDDEN.keys(), "this MLflow has other requests; some would be unguarded"


def _allowed(kind: Any, checked: Callable[[], bool]) -> bool:
    message = handlers._get_request_message(kind())  # parsed as the handler parses it
    rule = RULES.get(kind)
    change = rule.change(message) if rule else ""
    if change and (team := team_of("registered_model", message.name)) not in accounts().reviews(sender()):
        raise MlflowException(f"{sender().name} may not {change}. {_who(team)}", PERMISSION_DENIED)
    wrong = FORBIDDEN[kind](message) if kind in FORBIDDEN else ""
    if wrong:
        raise MlflowException(wrong, INVALID_PARAMETER_VALUE)
    return rule.reviewer() if change and rule and rule.reviewer else checked()


def _who(team: str | None) -> str:
    """The authorized accounts, in words, for an account that may read the model."""
    found = accounts().teams.get(team or "")
    if not found:
        return f"Admins may; the model is of no team that the server's {SETTING} names."
    names = ", ".join(sorted(found.reviewers)) or "nobody"
    return f"Admins and reviewers may; reviewers of the team {team} are {names} ({SETTING} of the server)."
