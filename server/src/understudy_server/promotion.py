"""Promotion: before the alias champion moves, the server tags and retains the versions, and signs the new one.

It does all this before the move: even if a later action fails, no version is the champion without it. A roll-back needs
the former champion unchanged, so both versions are tagged.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from flask import Flask, Response, g, request
from mlflow.entities.model_registry import ModelVersionTag, RegisteredModelTag
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, TEMPORARILY_UNAVAILABLE, ErrorCode
from mlflow.protos.model_registry_pb2 import DeleteRegisteredModelAlias, ModelRegistryService, SetRegisteredModelAlias
from mlflow.server import handlers

from understudy.registry.names import CHAMPION, DIGEST, PROMOTED
from understudy.registry.signature import SIGNATURE, signed, signing_key
from understudy_server.retention import retain, uploads_below

SERVER_TAGS = (PROMOTED, SIGNATURE)
"""The tags that only the server sets."""
PROMPT = "mlflow.prompt."
"""The prefix of MLflow's tags for prompts."""
ALIAS_REQUESTS = {
    (path, method): message
    for path, message, methods in handlers.get_service_endpoints(ModelRegistryService, lambda message: message)
    if message in (SetRegisteredModelAlias, DeleteRegisteredModelAlias)
    for method in methods
}


def handle_promotions(app: Flask) -> None:
    """Promote on every request that moves the alias. Call after MLflow added its checks."""
    app.before_request(_promote_or_refuse)


def retain_promoted() -> None:
    """Retain the requirements of versions that were promoted before this rule existed."""
    store = handlers._get_model_registry_store()
    models = pages(lambda token: store.search_registered_models(page_token=token))
    champions = {(m.name, str(v)) for m in models for alias, v in m.aliases.items() if is_champion(alias)}
    for version in (version for listing in listings() for version in listing):
        if PROMOTED in version.tags or (version.name, str(version.version)) in champions:
            retain(version)


def listings() -> Iterator[Iterator[Any]]:
    """All versions, the newest first, then those tagged as prompts, which MLflow's lists omit."""
    for filter_string in (None, f"tags.`{PROMPT}is_prompt` = 'true'"):
        yield pages(partial(_listed, filter_string))


def _listed(filter_string: str | None, token: str | None) -> Any:
    search = handlers._get_model_registry_store().search_model_versions
    return search(filter_string, order_by=["creation_timestamp DESC"], page_token=token)


def pages(page: Callable[[str | None], Any]) -> Iterator[Any]:
    """The items of all pages of a list."""
    token = None
    while True:
        items = page(token)
        yield from items
        token = items.token
        if not token:
            return


def _promote_or_refuse() -> Response | None:
    """Promote, and answer with its error: MLflow converts only the errors of its handlers."""
    try:
        _promote()
    except MlflowException as error:
        return Response(error.serialize_as_json(), error.get_http_status_code(), mimetype="application/json")
    return None


def _promote() -> None:
    message_type = ALIAS_REQUESTS.get((request.path, request.method))
    if message_type is None:
        return
    try:
        message = handlers._get_request_message(message_type())
    except MlflowException:  # the handler raises it too, and answers with it
        return
    if not is_champion(message.alias):
        return
    description = f"by {g.mlflow_authenticated_user} at {datetime.now(UTC).isoformat(timespec='seconds')}"
    for version in _affected_versions(message):
        retain(version)
        _tag_promoted(version, description)
        if isinstance(message, SetRegisteredModelAlias) and str(version.version) == message.version:
            _refuse_uploads(version)
    if isinstance(message, SetRegisteredModelAlias):
        _sign(message.name, message.version)


def _refuse_uploads(version: Any) -> None:
    """Refuse while an upload from before the promotion is in progress: it could replace a file that was reviewed."""
    if paths := uploads_below(version):
        raise MlflowException(
            f"files of version {version.version} of {version.name} are being uploaded ({', '.join(paths[:3])}); ask "
            "again when they are there, and look at them once more",
            TEMPORARILY_UNAVAILABLE,
        )


def _tag_promoted(version: Any, description: str) -> None:
    """Tag a version as promoted: from now on its account cannot change its tags."""
    store = handlers._get_model_registry_store()
    if PROMOTED not in version.tags:
        store.set_model_version_tag(version.name, version.version, ModelVersionTag(PROMOTED, description))
    store.set_registered_model_tag(version.name, RegisteredModelTag(PROMOTED, description))


def _sign(name: str, number: str) -> None:
    """Sign only the version in a reviewer's request: other aliases may have been set in the database.

    Its digest is read after the version is tagged: before that, its account could still change it.
    """
    key, version = signing_key(), registry_entity("get_model_version", name, number)
    if key is None or version is None or DIGEST not in version.tags:
        return
    value = signed(key, version.name, str(version.version), version.tags[DIGEST])
    tag = ModelVersionTag(SIGNATURE, value)
    handlers._get_model_registry_store().set_model_version_tag(version.name, version.version, tag)


def _affected_versions(message: Any) -> list[Any]:
    """The current champion, and the version that a request promotes."""
    model = registry_entity("get_registered_model", message.name)
    if model is None:
        return []
    numbers = {str(version) for alias, version in model.aliases.items() if is_champion(alias)}
    if isinstance(message, SetRegisteredModelAlias):
        numbers.add(message.version)
    versions = [registry_entity("get_model_version", message.name, number) for number in sorted(numbers)]
    return [version for version in versions if version is not None]


def is_promoted(entity: Any) -> bool:
    """Whether a model or version was promoted."""
    return PROMOTED in entity.tags or any(map(is_champion, entity.aliases))


def is_champion(alias: str) -> bool:
    """Whether an alias is the champion's; some databases compare without case."""
    return alias.lower() == CHAMPION


def registry_entity(method: str, *key: str) -> Any:
    """The registry's entity; None if it does not exist, which MLflow's check then handles."""
    try:
        return getattr(handlers._get_model_registry_store(), method)(*key)
    except MlflowException as error:
        if error.error_code == ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            return None
        raise
