"""Validation of model names: a permission must be able to contain the name, and must mean that model only.

A team's permission for a model is a row with its name. MLflow reads a permission for `*` as one for every model, and
the row's column is a character shorter than a model's name may be. So these names are refused, to admins too, before
anything is created.
"""

import json
from typing import Any

from flask import Flask, Response, request
from mlflow.exceptions import MlflowException
from mlflow.protos.model_registry_pb2 import CreateRegisteredModel, ModelRegistryService, RenameRegisteredModel
from mlflow.server import handlers

from understudy_server.ownership import EVERYTHING

LONGEST = 255  # characters of a name in MLflow's table of permissions
FIELDS: dict[type[object], str] = {CreateRegisteredModel: "name", RenameRegisteredModel: "new_name"}
"""Requests that name a model, and the field with the name."""
NAMING: dict[tuple[str, str], Any] = {
    (path, method): kind
    for path, kind, methods in handlers.get_service_endpoints(ModelRegistryService, lambda kind: kind)
    if kind in FIELDS
    for method in methods
}


def named(app: Flask) -> None:
    """Refuse invalid names. Call after MLflow added its checks, which admins bypass."""
    app.before_request(_refusal)


def _refusal() -> Response | None:
    kind = NAMING.get((request.path, request.method))
    wrong = _wrong(kind) if kind else ""
    if not wrong:
        return None
    body = {"error_code": "INVALID_PARAMETER_VALUE", "message": wrong}
    return Response(json.dumps(body), 400, mimetype="application/json")


def _wrong(kind: Any) -> str:
    try:
        name = getattr(handlers._get_request_message(kind()), FIELDS[kind])
    except MlflowException:  # the handler raises it too, and answers with it
        return ""
    if name.strip() == EVERYTHING:
        return f"a model is not called {name!r}: MLflow reads a right to it as one to every model"
    if len(name) > LONGEST:
        return f"a model's name has {LONGEST} characters at most, so that rights can hold it; this one has {len(name)}"
    return ""
