"""Rules that MLflow's own rights do not know: who promotes, what of it may change afterwards, and whose files count.

MLflow's app `basic-auth` knows who may edit a model, not which of its aliases: whoever may set `challenger` may set
`champion`, and the account that made a model may do anything with it. And it lets a version point anywhere, at
somebody else's bucket too, which the server would read with credentials of its own. So the requests that could do so
are asked here first; they are those of MLflow's own tables, at all of their addresses. Admins pass unasked.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flask import g
from mlflow.entities.model_registry import ModelVersionTag, RegisteredModelTag
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import (
    INVALID_PARAMETER_VALUE,
    PERMISSION_DENIED,
    RESOURCE_DOES_NOT_EXIST,
    ErrorCode,
)
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
)
from mlflow.protos.service_pb2 import CreateExperiment, MlflowService
from mlflow.server import auth, handlers

from understudy.registry.names import CHAMPION

REVIEWERS = "UNDERSTUDY_REVIEWERS"
PROMOTED = "understudy.promoted"  # by whom and when
LOOKALIKES = str.maketrans({"0": "o", "1": "i", "l": "i", "|": "i", "_": None, "-": None, ".": None})


class Rule(NamedTuple):
    """What a request would do that only reviewers may, in words or nothing; what a reviewer needs for it besides."""

    change: Callable[[Any], str]
    reviewer: Callable[[], bool] | None = None  # None: what MLflow asks of everybody


# Who may


def _set(message: Any) -> str:
    return f"move the alias {CHAMPION} of {message.name}" if _is_champion(message.alias) else ""


def _unset(message: Any) -> str:
    return f"remove the alias {CHAMPION} of {message.name}" if _is_champion(message.alias) else ""


def _version(verb: str, message: Any) -> str:
    found = _found("get_model_version", message.name, message.version)
    if found is None or not _is_promoted(found):
        return ""
    return f"{verb} version {found.version} of {message.name}, which was promoted to {CHAMPION}"


def _model(verb: str, message: Any) -> str:
    found = _found("get_registered_model", message.name)
    if found is None or not _is_promoted(found):
        return ""
    return f"{verb} {message.name}, of which a version was promoted to {CHAMPION}"


def _mark_of_version(message: Any) -> str:
    return f"set the tag {PROMOTED}" if message.key == PROMOTED else _version("change", message)


def _mark_of_model(message: Any) -> str:
    return f"change the tag {PROMOTED} of {message.name}" if message.key == PROMOTED else ""


# A reviewer need not be able to edit a model to move its champion, only to read it.
RULES: dict[type[object], Rule] = {
    SetRegisteredModelAlias: Rule(_set, auth.validate_can_read_model_or_prompt_version),
    DeleteRegisteredModelAlias: Rule(_unset, auth.validate_can_read_model_or_prompt_version),
    DeleteModelVersion: Rule(partial(_version, "delete")),
    UpdateModelVersion: Rule(partial(_version, "change")),
    TransitionModelVersionStage: Rule(partial(_version, "change")),
    SetModelVersionTag: Rule(_mark_of_version),
    DeleteModelVersionTag: Rule(partial(_version, "change")),
    DeleteRegisteredModel: Rule(partial(_model, "delete")),
    RenameRegisteredModel: Rule(partial(_model, "rename")),
    SetRegisteredModelTag: Rule(_mark_of_model),
    DeleteRegisteredModelTag: Rule(_mark_of_model),
}


# What nobody may


def _lookalike(message: Any) -> str:
    alias = message.alias
    if not alias.isascii():
        return f"the alias {alias!r} has letters other than ASCII's; some look like others"
    if not _is_champion(alias) and alias.lower().translate(LOOKALIKES) == CHAMPION.translate(LOOKALIKES):
        return f"the alias {alias!r} looks like {CHAMPION}"
    return ""


def _elsewhere(address: str, what: str) -> str:
    """What is wrong with an address of files, unless it is one that the server gives out itself."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return f"{what}: {address!r} is not an address"
    if not address or (parts.scheme in ("mlflow-artifacts", "runs", "models") and not parts.netloc):
        return ""
    return f"{what}: {address} lies outside of this server's artifacts; log the files to a run, and name that"


def _marked(message: Any) -> str:
    return f"only the server sets the tag {PROMOTED}" if any(tag.key == PROMOTED for tag in message.tags) else ""


FORBIDDEN: dict[type[object], Callable[[Any], str]] = {
    SetRegisteredModelAlias: _lookalike,
    CreateRegisteredModel: _marked,
    CreateModelVersion: lambda message: _marked(message) or _elsewhere(message.source, "source"),
    CreateExperiment: lambda message: _elsewhere(message.artifact_location, "artifact_location"),
}


def guard(names: list[str]) -> None:
    """Put the rules before MLflow's own check of every request that they are about."""
    guarded = set()
    for service in (ModelRegistryService, MlflowService):
        for path, request, methods in handlers.get_service_endpoints(service, lambda request: request):
            if request not in RULES and request not in FORBIDDEN:
                continue
            guarded.add(request)
            for method in methods:
                checked = auth.BEFORE_REQUEST_VALIDATORS[path, method]
                auth.BEFORE_REQUEST_VALIDATORS[path, method] = partial(_allowed, names, request, checked)
                if request is SetRegisteredModelAlias:
                    assert (path, method) not in auth.AFTER_REQUEST_HANDLERS
                    auth.AFTER_REQUEST_HANDLERS[path, method] = _mark
    assert guarded == RULES.keys() | FORBIDDEN.keys(), "this MLflow has other requests; some would be unguarded"


def _allowed(names: list[str], request: Any, checked: Callable[[], bool]) -> bool:
    message = handlers._get_request_message(request())  # read as the handler will read it
    wrong = FORBIDDEN[request](message) if request in FORBIDDEN else ""
    if wrong:
        raise MlflowException(wrong, INVALID_PARAMETER_VALUE)
    rule = RULES.get(request)
    change = rule.change(message) if rule else ""
    if not change:
        return checked()
    account = g.mlflow_authenticated_user
    if account not in names:
        raise MlflowException(
            f"{account} may not {change}. Admins and reviewers may; reviewers are {', '.join(names) or 'nobody'} "
            f"({REVIEWERS} of the server).",
            PERMISSION_DENIED,
        )
    return rule.reviewer() if rule and rule.reviewer else checked()


def _mark(_response: object) -> None:
    """Remember that a version was promoted, where its account cannot write: a roll-back needs it as it was."""
    message = handlers._get_request_message(SetRegisteredModelAlias())
    if _is_champion(message.alias):
        said = f"by {g.mlflow_authenticated_user} at {datetime.now(UTC).isoformat(timespec='seconds')}"
        store = handlers._get_model_registry_store()
        store.set_model_version_tag(message.name, message.version, ModelVersionTag(PROMOTED, said))
        store.set_registered_model_tag(message.name, RegisteredModelTag(PROMOTED, said))


def _is_promoted(found: Any) -> bool:
    return PROMOTED in found.tags or any(map(_is_champion, found.aliases))


def _is_champion(alias: str) -> bool:
    return alias.lower() == CHAMPION  # some databases compare without case


def _found(method: str, *key: str) -> Any:
    """What the registry has; None when there is no such thing, which MLflow's own check then deals with."""
    try:
        return getattr(handlers._get_model_registry_store(), method)(*key)
    except MlflowException as error:
        if error.error_code == ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            return None
        raise
