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

from understudy_server.ownership import WILDCARD

MAX_LENGTH = 255  # characters of a name in MLflow's table of permissions
FIELDS: dict[type[object], str] = {CreateRegisteredModel: "name", RenameRegisteredModel: "new_name"}
"""Requests that name a model, and the field with the name."""
NAMING_REQUESTS: dict[tuple[str, str], Any] = {
    (path, method): message_type
    for path, message_type, methods in handlers.get_service_endpoints(
        ModelRegistryService, lambda message_type: message_type
    )
    if message_type in FIELDS
    for method in methods
}


def validate_model_names(app: Flask) -> None:
    """Refuse invalid names. Call after MLflow added its checks, which admins bypass."""
    app.before_request(_refusal)


def _refusal() -> Response | None:
    message_type = NAMING_REQUESTS.get((request.path, request.method))
    error = _error(message_type) if message_type else ""
    if not error:
        return None
    body = {"error_code": "INVALID_PARAMETER_VALUE", "message": error}
    return Response(json.dumps(body), 400, mimetype="application/json")


def _error(message_type: Any) -> str:
    try:
        name = getattr(handlers._get_request_message(message_type()), FIELDS[message_type])
    except MlflowException:  # the handler raises it too, and answers with it
        return ""
    if name.strip() == WILDCARD:
        return f"a model cannot be called {name!r}: MLflow reads a permission for it as one for every model"
    if len(name) > MAX_LENGTH:
        return f"a model's name has {MAX_LENGTH} characters at most, as in permissions; this one has {len(name)}"
    return ""
