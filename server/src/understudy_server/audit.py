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
LONG = 256  # characters of a value in a state; a longer one is replaced by its digest
MANY = 16_384  # characters of all tags or aliases in a state
SECRET = re.compile("password|secret|token", re.IGNORECASE)


class Where(NamedTuple):
    """The origin of a request: the address of the connection's peer, and its X-Forwarded-For header."""

    address: str | None
    forwarded: str | None


class Change(NamedTuple):
    """A request that may change something, with the state before it."""

    what: str
    asked: dict[str, Any]
    before: dict[str, Any] | None


def audited(app: Flask) -> None:
    """Record every change that the app makes from now on. Call before MLflow adds its after-request handlers.

    Flask runs these in reverse order, so the state is read after all of MLflow's.
    """
    app.after_request(_write)
    app.add_url_rule(PATH, "understudy_audit", _page, methods=["GET"])


def observed(app: Flask) -> None:
    """Read the state before every change. Call after MLflow added its checks: a refused request is no change."""
    app.before_request(_look)


def _look() -> None:
    found = CHANGES.fullmatch(request.path)
    if request.method in ("GET", "HEAD", "OPTIONS") or not found or found[1] in READS:
        return
    asked = _asked()
    g.understudy_change = Change(f"{request.method} {found[1]}", asked, _state(found[1], asked))


def _asked() -> dict[str, Any]:
    """A request's parameters, parsed as MLflow's handler parses them, without secrets."""
    rule = request.url_rule.rule if request.url_rule else ""
    kind = MESSAGES.get((rule, request.method))
    if kind:
        said = _message(kind())
    else:
        content = request.get_json(force=True, silent=True)
        said = {**request.args, **request.form, **(content if isinstance(content, dict) else {})}
    return {name: value for name, value in {**said, **(request.view_args or {})}.items() if not SECRET.search(name)}


def _message(empty: Any) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(message_to_json(handlers._get_request_message(empty)))
    except MlflowException:  # the handler raises it too, and answers with it
        return {}
    return said


def _state(what: str, asked: dict[str, Any]) -> dict[str, Any] | None:
    """The state of the model and version, or of the account; None if it does not exist."""
    try:
        if what.startswith(REGISTRY) and "name" in asked:
            return _model(asked["name"], asked.get("version"))
        if what.startswith("users") and "username" in asked:
            return {"is_admin": auth.store.get_user(asked["username"]).is_admin}
    except MlflowException:
        return None
    return None


def _model(name: str, version: str | None) -> dict[str, Any]:
    store = handlers._get_model_registry_store()
    model = store.get_registered_model(name)
    state: dict[str, Any] = {
        "aliases": _shortened(model.aliases),
        "tags": _shortened(model.tags),
        "description": _short(model.description),
    }
    if version:
        found = store.get_model_version(name, version)
        seen = {"description": _short(found.description), "stage": found.current_stage}
        state["version"] = {"number": str(found.version), "tags": _shortened(found.tags), **seen}
    return state


def _shortened(values: Mapping[str, Any]) -> Any:
    """Values shortened for a state: each further change writes them twice, so its line must be short."""
    said = {name: _short(value) for name, value in values.items()}
    return said if len(json.dumps(said)) <= MANY else _digest(json.dumps(dict(values), sort_keys=True))


def _short(value: Any) -> Any:
    return _digest(value) if isinstance(value, str) and len(value) > LONG else value


def _digest(text: str) -> dict[str, Any]:
    return {"sha256": sha256(text.encode(errors="surrogatepass")), "length": len(text)}


def _write(response: Response) -> Response:
    change: Change | None = g.pop("understudy_change", None)
    if change is None or response.status_code >= 400:
        return response
    asked = {**change.asked, **_made(response)}
    after = _state(change.what.partition(" ")[2], {**asked, "name": asked.get("new_name", asked.get("name"))})
    where = Where(request.remote_addr, request.headers.get("X-Forwarded-For"))
    _add(getattr(g, "mlflow_authenticated_user", ""), change, asked, after, where)
    return response


def write_sign_in(who: str, what: str, before: dict[str, Any] | None, after: dict[str, Any], where: Where) -> None:
    """Record a change to an account at sign-in, which follows from the setting and not from a request."""
    asked = {"username": who}
    _add(who, Change(f"SIGN-IN {what}", asked, before), asked, after, where)


def _add(who: str, change: Change, asked: dict[str, Any], after: dict[str, Any] | None, where: Where) -> None:
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "who": who,
        "where": where.address,
        "forwarded": where.forwarded,
        "what": change.what,
        "model": asked.get("name"),
        "version": asked.get("version"),
        "alias": asked.get("alias"),
        "asked": change.asked,
        "before": change.before,
        "after": after,
    }
    log.info("%s", append(auth.store.engine, entry))
    AUDIT_LINES.inc()


def _made(response: Response) -> dict[str, Any]:
    """The number of a created version."""
    made = (response.get_json(silent=True) or {}).get("model_version", {}) if response.is_json else {}
    return {"version": made["version"]} if "version" in made else {}


def _page() -> Response:
    """The lines after a number, as many as fit a page; for admins only."""
    if not auth.sender_is_admin():
        return Response("Permission denied", 403)
    lines = lines_after(auth.store.engine, request.args.get("after", 0, type=int))
    return Response(json.dumps({"lines": lines}), mimetype="application/json")
