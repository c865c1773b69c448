"""Audit log of changes to the registry and its accounts, in an append-only table of the server's database.

Each successful change is recorded with the state before and after, the account, and the client's address. Runs are
audited only when they are deleted or restored, metrics never. Admins read the audit at PATH.
"""

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from flask import Flask, Response, g, request
from mlflow.exceptions import MlflowException
from mlflow.protos.model_registry_pb2 import ModelRegistryService
from mlflow.protos.service_pb2 import MlflowService
from mlflow.protos.webhooks_pb2 import WebhookService
from mlflow.server import auth, handlers
from mlflow.utils.proto_json_utils import message_to_json

from understudy.registry.audit import PATH
from understudy.store.files import sha256
from understudy_server.audit_table import append, lines_after
from understudy_server.metrics import AUDIT_LINES

log = logging.getLogger(__name__)
CHANGES = re.compile(
    r"/(?:ajax-)?api/[23]\.0/mlflow/"
    r"((?:registered-models|model-versions|experiments|logged-models|users|roles|webhooks)(?:/(?s:.+))?|runs/(?:delete|restore))"
)
READS = {
    "registered-models/get-latest-versions",
    "experiments/search",
    "experiments/search-datasets",
    "logged-models/search",
}
MESSAGES = {
    (path, method): message
    for service in (ModelRegistryService, MlflowService, WebhookService)
    for path, message, methods in handlers.get_service_endpoints(service, lambda message: message)
    for method in methods
}
REGISTRY = ("registered-models", "model-versions")
MAX_VALUE = 256  # characters of a value in a state; a longer one is replaced by its digest
MAX_STATE = 16_384  # characters of all tags or aliases in a state
SECRET = re.compile("password|secret|token", re.IGNORECASE)


class Origin(NamedTuple):
    """The origin of a request: the address of the connection's peer, and its X-Forwarded-For header."""

    address: str | None
    forwarded: str | None


class Change(NamedTuple):
    """A request that may change something, with the state before it."""

    action: str
    parameters: dict[str, Any]
    before: dict[str, Any] | None


def record_changes(app: Flask) -> None:
    """Record every change that the app makes from now on. Call before MLflow adds its after-request handlers.

    Flask runs these in reverse order, so the state is read after all of MLflow's.
    """
    app.after_request(_record)
    app.add_url_rule(PATH, "understudy_audit", _page, methods=["GET"])


def read_states_before(app: Flask) -> None:
    """Read the state before every change. Call after MLflow added its checks: a refused request is no change."""
    app.before_request(_read_state)


def _read_state() -> None:
    match = CHANGES.fullmatch(request.path)
    if request.method in ("GET", "HEAD", "OPTIONS") or not match or match[1] in READS:
        return
    parameters = _parameters()
    g.understudy_change = Change(f"{request.method} {match[1]}", parameters, _state(match[1], parameters))


def _parameters() -> dict[str, Any]:
    """A request's parameters, parsed as MLflow's handler parses them, without secrets."""
    route = request.url_rule.rule if request.url_rule else ""
    message_type = MESSAGES.get((route, request.method))
    if message_type:
        parameters = _message(message_type())
    else:
        content = request.get_json(force=True, silent=True)
        parameters = {**request.args, **request.form, **(content if isinstance(content, dict) else {})}
    parameters |= request.view_args or {}
    return {name: value for name, value in parameters.items() if not SECRET.search(name)}


def _message(message: Any) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = json.loads(message_to_json(handlers._get_request_message(message)))
    except MlflowException:  # the handler raises it too, and answers with it
        return {}
    return parsed


def _state(action: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """The state of the model and version, or of the account; None if it does not exist."""
    try:
        if action.startswith(REGISTRY) and "name" in parameters:
            return _model(parameters["name"], parameters.get("version"))
        if action.startswith("users") and "username" in parameters:
            return {"is_admin": auth.store.get_user(parameters["username"]).is_admin}
    except MlflowException:
        return None
    return None


def _model(name: str, version: str | None) -> dict[str, Any]:
    store = handlers._get_model_registry_store()
    model = store.get_registered_model(name)
    state: dict[str, Any] = {
        "aliases": _shortened(model.aliases),
        "tags": _shortened(model.tags),
        "description": _shortened_value(model.description),
    }
    if version:
        entity = store.get_model_version(name, version)
        details = {"description": _shortened_value(entity.description), "stage": entity.current_stage}
        state["version"] = {"number": str(entity.version), "tags": _shortened(entity.tags), **details}
    return state


def _shortened(values: Mapping[str, Any]) -> Any:
    """Values shortened for a state: each further change writes them twice, so its line must be short."""
    shortened = {name: _shortened_value(value) for name, value in values.items()}
    return shortened if len(json.dumps(shortened)) <= MAX_STATE else _digest(json.dumps(dict(values), sort_keys=True))


def _shortened_value(value: Any) -> Any:
    return _digest(value) if isinstance(value, str) and len(value) > MAX_VALUE else value


def _digest(text: str) -> dict[str, Any]:
    return {"sha256": sha256(text.encode(errors="surrogatepass")), "length": len(text)}


def _record(response: Response) -> Response:
    change: Change | None = g.pop("understudy_change", None)
    if change is None or response.status_code >= 400:
        return response
    parameters = {**change.parameters, **_created_version(response)}
    name = parameters.get("new_name", parameters.get("name"))
    after = _state(change.action.partition(" ")[2], {**parameters, "name": name})
    origin = Origin(request.remote_addr, request.headers.get("X-Forwarded-For"))
    _add(getattr(g, "mlflow_authenticated_user", ""), change, parameters, after, origin)
    return response


def record_sign_in(
    account: str, action: str, before: dict[str, Any] | None, after: dict[str, Any], origin: Origin
) -> None:
    """Record a change to an account at sign-in, which follows from the setting and not from a request."""
    parameters = {"username": account}
    _add(account, Change(f"SIGN-IN {action}", parameters, before), parameters, after, origin)


def _add(
    account: str, change: Change, parameters: dict[str, Any], after: dict[str, Any] | None, origin: Origin
) -> None:
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "who": account,
        "where": origin.address,
        "forwarded": origin.forwarded,
        "what": change.action,
        "model": parameters.get("name"),
        "version": parameters.get("version"),
        "alias": parameters.get("alias"),
        "asked": change.parameters,
        "before": change.before,
        "after": after,
    }
    log.info("%s", append(auth.store.engine, entry))
    AUDIT_LINES.inc()


def _created_version(response: Response) -> dict[str, Any]:
    """The number of a created version."""
    version = (response.get_json(silent=True) or {}).get("model_version", {}) if response.is_json else {}
    return {"version": version["version"]} if "version" in version else {}


def _page() -> Response:
    """The lines after a number, as many as fit a page; for admins only."""
    if not auth.sender_is_admin():
        return Response("Permission denied", 403)
    lines = lines_after(auth.store.engine, request.args.get("after", 0, type=int))
    return Response(json.dumps({"lines": lines}), mimetype="application/json")
