"""Validation that refuses ambiguous requests.

MLflow's authorization and its handlers parse a request separately, and not always alike: of a DELETE the query was
authorized and the body executed; `run_uuid` was authorized and `runId` executed. So a reader could delete other
accounts' resources. A request that states a value in two places, or in a spelling that only one of them reads, is
refused.
"""

import json
import re
from typing import Any

from flask import Flask, Response, request

API = re.compile(r"/(ajax-)?api/\d\.\d/mlflow/")
NAME = re.compile("[a-z][a-z0-9_]*")


def refuse_ambiguous_requests(app: Flask) -> None:
    """Refuse ambiguous requests. Call before MLflow adds its checks."""
    app.before_request(_refusal)


def _refusal() -> Response | None:
    error = _ambiguity() if API.match(request.path) else ""
    if not error:
        return None
    body = {"error_code": "INVALID_PARAMETER_VALUE", "message": f"{error}; MLflow's client sends no such request"}
    return Response(json.dumps(body), 400, mimetype="application/json")


def _ambiguity() -> str:
    """A description of the request's ambiguity; empty if it has none."""
    if request.method in ("GET", "HEAD"):
        return "a GET has no body" if request.get_data(cache=True) else _invalid_name(set(request.args))
    if request.query_string:
        return f"a {request.method} has its parameters in the body, not in the query"
    if request.mimetype == "application/x-www-form-urlencoded" and request.path.endswith("/users/create-ui"):
        return ""  # the only form, which MLflow protects with a token
    if not request.get_data(cache=True):
        return ""
    try:
        content = request.get_json(silent=True)  # None for any other type of content
    except RecursionError:
        return "a body is nested no deeper than MLflow's messages"
    if not isinstance(content, dict):
        return "a body is a JSON object of the type application/json"
    return _invalid_name(set(content)) or _contradiction(content)


def _invalid_name(names: set[str]) -> str:
    invalid = sorted(name for name in names if not NAME.fullmatch(name))
    return f"{invalid[0]!r} is not the name of a parameter" if invalid else ""


def _contradiction(content: dict[str, Any]) -> str:
    if "run_uuid" in content and content["run_uuid"] != content.get("run_id", content["run_uuid"]):
        return "run_uuid and run_id name different runs"
    for name, value in (request.view_args or {}).items():
        if str(content.get(name, value)) != str(value):
            return f"{name} has one value in the path and another in the body"
    return ""
