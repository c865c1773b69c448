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
from understudy_server.confusables import confusable_with_champion
from understudy_server.ownership import team_of
from understudy_server.promotion import PROMPT, SERVER_TAGS, is_champion, is_promoted, registry_entity
from understudy_server.retention import lineage
from understudy_server.sign_in import accounts, sender
from understudy_server.teams import SETTING

UNRESOLVED = (
    "{} is resolved again whenever it is read, so its files can change; create a version that names the files "
    "themselves (mlflow-artifacts:/EXPERIMENT/RUN/artifacts/PATH), as mlflow.register_model does"
)
SERVER_FILES = re.compile(r"mlflow-artifacts:/(?!/)[^?#%\\\s]+")  # a path on this server, in canonical form


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
    version = registry_entity("get_model_version", message.name, message.version)
    if version is None or not is_promoted(version):
        return ""
    return f"{verb} version {version.version} of {message.name}, which was promoted to {CHAMPION}"


def _stage(message: Any) -> str:
    if message.archive_existing_versions and _model("archive", message):
        return f"archive the other versions of {message.name}, of which one was promoted to {CHAMPION}"
    return _version("change", message)


def _model(verb: str, message: Any) -> str:
    model = registry_entity("get_registered_model", message.name)
    if model is None or not is_promoted(model):
        return ""
    return f"{verb} {message.name}, of which a version was promoted to {CHAMPION}"


def _tag_of_version(message: Any) -> str:
    return f"set the tag {message.key}" if message.key in SERVER_TAGS else _version("change", message)


def _tag_of_model(message: Any) -> str:
    if message.key in SERVER_TAGS:
        return f"change the tag {message.key} of {message.name}"
    return _model("change", message)


def _may_promote() -> bool:
    """Whether a reviewer may read the new champion, whose files must lie where they can be retained."""
    if not auth.validate_can_read_model_or_prompt_version():
        return False
    message = handlers._get_request_message(SetRegisteredModelAlias())
    if registry_entity("get_model_version", message.name, message.version):
        registry = handlers._get_model_registry_store()
        uri = str(registry.get_model_version_download_uri(message.name, message.version))
        if not SERVER_FILES.fullmatch(uri):  # a version from before the rule for sources
            text = f"version {message.version} of {message.name}: {UNRESOLVED.format(uri)}"
            raise MlflowException(text, INVALID_PARAMETER_VALUE)
    return True


# To move the champion, a reviewer must be able to read the model, not to edit it.
RULES: dict[type[object], Rule] = {
    SetRegisteredModelAlias: Rule(_set, _may_promote),
    DeleteRegisteredModelAlias: Rule(_unset, auth.validate_can_read_model_or_prompt_version),
    DeleteModelVersion: Rule(partial(_version, "delete")),
    UpdateModelVersion: Rule(partial(_version, "change")),
    TransitionModelVersionStage: Rule(_stage),
    SetModelVersionTag: Rule(_tag_of_version),
    DeleteModelVersionTag: Rule(partial(_version, "change")),
    DeleteRegisteredModel: Rule(partial(_model, "delete")),
    RenameRegisteredModel: Rule(partial(_model, "rename")),
    UpdateRegisteredModel: Rule(partial(_model, "change")),
    SetRegisteredModelTag: Rule(_tag_of_model),
    DeleteRegisteredModelTag: Rule(_tag_of_model),
}


# Changes for admins only


def _artifact_location(message: Any) -> str:
    if not message.artifact_location:
        return ""
    return "artifact_location: the server decides where an experiment's files are stored; leave it out"


def _source(message: Any) -> str:
    if message.source.lower().startswith("runs:"):
        return f"source: {UNRESOLVED.format(message.source)}"
    unreadable = f"source: {message.source} names no run, logged model or version of this server that you may read"
    try:
        uri = _files_of(message.source)
    except (MlflowException, ValueError):
        return unreadable
    if not SERVER_FILES.fullmatch(uri) or ".." in uri.split("/"):
        return (
            f"source: {message.source} lies outside of this server's artifacts; log the files to a run, and name that"
        )
    if not _permission(uri.removeprefix("mlflow-artifacts:/").partition("/")[0]).can_read:
        return unreadable
    return _foreign_run(message) or _foreign_lineage(message, uri)


def _foreign_lineage(message: Any, uri: str) -> str:
    """Refuse a lineage that the account cannot write to: a promotion makes all of it read-only."""
    resources = lineage(uri, message.run_id)
    if all(_permission(name).can_update for resource_type, name in resources if resource_type == "experiment"):
        return ""
    return (
        f"source: {message.source} comes from a run or logged model that this account cannot write to; "
        "log the files to a run of its own, and name that"
    )


def _permission(experiment: str) -> Any:
    return auth._get_experiment_permission(experiment, sender().name)


def _foreign_run(message: Any) -> str:
    """Refuse a run that the account cannot write to: a version's run is its evidence, and read-only once promoted."""
    if not message.run_id or auth.validate_can_update_run():
        return ""
    return f"run_id: {message.run_id} is a run that this account cannot write to; name one of its own"


def _files_of(source: str) -> str:
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


def _version_of(reference: str) -> tuple[str, str]:
    """The model and version of NAME/VERSION or NAME@ALIAS."""
    name, at, alias = reference.partition("@")
    if at:
        return name, str(handlers._get_model_registry_store().get_model_version_by_alias(name, alias).version)
    name, _, version = reference.partition("/")
    return name, version


def _reserved_tags(message: Any) -> str:
    error = next((f"only the server sets the tag {tag.key}" for tag in message.tags if tag.key in SERVER_TAGS), "")
    return error or next(filter(None, map(_prompt_tag, message.tags)), "")


def _prompt_tag(tag: Any) -> str:
    """Refuse tags of prompts: MLflow omits prompts from its lists, so neither gc nor reviewers would see the model."""
    return f"tags: {tag.key} is for prompts, and this server has no prompts" if tag.key.startswith(PROMPT) else ""


def _digest_tag(message: Any) -> str:
    """Refuse changes to the digest: promotion policy takes a model's age from its first version with that digest."""
    return f"the tag {DIGEST} is set when a version is created, and cannot be changed" if message.key == DIGEST else ""


FORBIDDEN: dict[type[object], Callable[[Any], str]] = {
    SetRegisteredModelAlias: lambda message: confusable_with_champion(message.alias),
    CreateRegisteredModel: _reserved_tags,
    CreateModelVersion: lambda message: _reserved_tags(message) or _source(message),
    CreateExperiment: _artifact_location,
    SetRegisteredModelTag: _prompt_tag,
    SetModelVersionTag: lambda message: _prompt_tag(message) or _digest_tag(message),
    DeleteModelVersionTag: _digest_tag,
}


PERMISSION_ROUTES = (
    routes.GRANT_USER_PERMISSION,
    routes.AJAX_GRANT_USER_PERMISSION,
    routes.REVOKE_USER_PERMISSION,
    routes.AJAX_REVOKE_USER_PERMISSION,
)


def add_rules() -> None:
    """Run the rules before MLflow's check of every request that they cover."""
    for path in PERMISSION_ROUTES:  # a model's owner could revoke its reviewers' permissions
        auth.BEFORE_REQUEST_VALIDATORS[path, "POST"] = auth.sender_is_admin
    covered = set()
    for service in (ModelRegistryService, MlflowService):
        for path, message_type, methods in handlers.get_service_endpoints(service, lambda message_type: message_type):
            if message_type not in RULES and message_type not in FORBIDDEN:
                continue
            covered.add(message_type)
            for method in methods:
                check = auth.BEFORE_REQUEST_VALIDATORS[path, method]
                auth.BEFORE_REQUEST_VALIDATORS[path, method] = partial(_allowed, message_type, check)
    assert covered == RULES.keys() | FORBIDDEN.keys(), "this MLflow has other requests; some would be unguarded"


def _allowed(message_type: Any, check: Callable[[], bool]) -> bool:
    message = handlers._get_request_message(message_type())  # parsed as the handler parses it
    rule = RULES.get(message_type)
    change = rule.change(message) if rule else ""
    if change and (team := team_of("registered_model", message.name)) not in accounts().reviews(sender()):
        raise MlflowException(f"{sender().name} may not {change}. {_authorized_accounts(team)}", PERMISSION_DENIED)
    error = FORBIDDEN[message_type](message) if message_type in FORBIDDEN else ""
    if error:
        raise MlflowException(error, INVALID_PARAMETER_VALUE)
    return rule.reviewer() if change and rule and rule.reviewer else check()


def _authorized_accounts(team: str | None) -> str:
    """The authorized accounts, in words, for an account that may read the model."""
    members = accounts().teams.get(team or "")
    if not members:
        return f"Admins may; the model is of no team that the server's {SETTING} names."
    names = ", ".join(sorted(members.reviewers)) or "nobody"
    return f"Admins and reviewers may; reviewers of the team {team} are {names} ({SETTING} of the server)."
