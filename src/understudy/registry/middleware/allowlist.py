"""Allowlist of the requests that reach MLflow's server. All others are answered with 404, for every account.

MLflow 3.17 mounts more than tracking and registry, and its accounts do not protect all of it. Its assistant serves
any account over loopback, a port-forward too: it runs commands on request, with the server's environment, which
contains the passwords. So the served requests are listed here, and MLflow never sees another. Authorization follows
behind the allowlist, by MLflow's accounts and by `authorization.py`.
"""

import json
import re
from typing import NamedTuple

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy.registry.middleware.body_limit import BodyLimit
from understudy.registry.middleware.page_settings import PageSettings

# A line: methods, then paths. {name} is one segment of a path, {name...} the rest.
PROGRAMS = """
POST         experiments/create experiments/delete experiments/restore experiments/update
POST         experiments/set-experiment-tag experiments/delete-experiment-tag
GET          experiments/get experiments/get-by-name
GET,POST     experiments/search
POST         runs/create runs/update runs/delete runs/restore runs/search runs/set-tag runs/delete-tag
POST         runs/log-metric runs/log-parameter runs/log-batch runs/log-inputs runs/log-model runs/outputs
GET          runs/get metrics/get-history metrics/get-history-bulk-interval artifacts/list
POST         artifacts/presigned-download-url
POST         logged-models logged-models/search logged-models/{model}/params
GET,PATCH,DELETE logged-models/{model}
PATCH        logged-models/{model}/tags
DELETE       logged-models/{model}/tags/{tag}
GET          logged-models/{model}/artifacts/directories
POST         registered-models/create registered-models/rename registered-models/set-tag
PATCH        registered-models/update
DELETE       registered-models/delete registered-models/delete-tag
GET          registered-models/get registered-models/search
GET,POST     registered-models/get-latest-versions
GET,POST,DELETE registered-models/alias
POST         model-versions/create model-versions/set-tag model-versions/transition-stage
PATCH        model-versions/update
DELETE       model-versions/delete model-versions/delete-tag
GET          model-versions/get model-versions/search model-versions/get-download-uri
POST         users/create
GET          users/get users/list users/current
PATCH        users/update-password users/update-admin
DELETE       users/delete
GET,POST     webhooks
GET,PATCH,DELETE webhooks/{webhook}
POST         webhooks/{webhook}/test
"""
ROLES = """
POST         roles/create roles/assign roles/permissions/add
GET          roles/get roles/list roles/permissions/list roles/users/list
PATCH        roles/update roles/permissions/update
DELETE       roles/delete roles/unassign roles/permissions/remove
GET          users/current/permissions users/permissions/get users/permissions/list users/roles/list
POST         users/permissions/grant users/permissions/revoke
"""
ARTIFACTS = """
GET          artifacts presigned/{path...}
GET,PUT      artifacts/{path...}
POST         mpu/create/{path...} mpu/complete/{path...} mpu/abort/{path...}
"""
PAGES = """
GET          / /health /version /signup /static-files/{path...} /get-artifact /model-versions/get-artifact
GET,POST     /graphql
POST         /api/2.0/mlflow/users/create-ui
GET          /api/2.0/mlflow/understudy/audit
POST         /ajax-api/2.0/mlflow/experiments/search-datasets
GET          /ajax-api/2.0/mlflow/metrics/get-history-bulk /ajax-api/2.0/mlflow/logged-models/{model}/artifacts/files
"""


# Fixed answers to requests that the pages send before they show anything. MLflow's answers would come from the
# gateway, request usage data, and reveal the server's setup.
FIXED_RESPONSES = {
    "/ajax-api/2.0/mlflow/gateway-proxy": {"endpoints": []},
    "/ajax-api/3.0/mlflow/ui-telemetry": {
        "disable_ui_telemetry": True,
        "disable_ui_events": [],
        "ui_rollout_percentage": 0,
    },
    "/ajax-api/3.0/mlflow/server-info": {"workspaces_enabled": False, "features_enabled": {"gateway": False}},
}


class Route(NamedTuple):
    """Allowed requests: a path pattern and its methods."""

    path: re.Pattern[str]
    methods: frozenset[str]


def allowed_routes() -> tuple[Route, ...]:
    """All allowed requests. Routes for programs have a second address, which the pages use."""
    apis = ("/api", "/ajax-api")
    return tuple(
        route
        for prefixes, table in (
            ([f"{api}/2.0/mlflow/" for api in apis], PROGRAMS),
            ([f"{api}/3.0/mlflow/" for api in apis], ROLES),
            ([f"{api}/2.0/mlflow-artifacts/" for api in apis], ARTIFACTS),
            ([""], PAGES),
        )
        for prefix in prefixes
        for route in _parsed(prefix, table)
    )


def _parsed(prefix: str, table: str) -> list[Route]:
    routes = []
    for line in table.strip().splitlines():
        methods, *paths = line.split()
        routes += [Route(_pattern(prefix + path), frozenset(methods.split(","))) for path in paths]
    return routes


def _pattern(path: str) -> re.Pattern[str]:
    """A pattern for whole paths, where `re.escape` has put a backslash before braces and dots."""
    pattern = re.sub(r"\\\{\w+\\\.\\\.\\\.\\\}", "(?s:.+)", re.escape(path))
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", pattern))


class Allowlist:
    """The allowlist as ASGI middleware (https://asgi.readthedocs.io/en/latest/specs/www.html).

    It matches the path as MLflow's routers will: decoded and not normalised, so that `//` or `..` hide nothing.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.routes = allowed_routes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here, mostly with 404."""
        if scope["type"] == "lifespan" or self._allows(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            content = FIXED_RESPONSES.get(scope["path"]) if scope["method"] == "GET" else None
            for message in _response(200, content) if content else _not_found(scope["path"]):
                await send(message)
        else:
            await send({"type": "websocket.close", "code": 1000})

    def _allows(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope.get("root_path"):
            return False
        return any(scope["method"] in methods and path.fullmatch(scope["path"]) for path, methods in self.routes)


def _response(status: int, content: object) -> tuple[Message, Message]:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    start = {"type": "http.response.start", "status": status, "headers": headers}
    return start, {"type": "http.response.body", "body": body}


def _not_found(path: str) -> tuple[Message, Message]:
    """A 404 in the error format of MLflow's clients."""
    text = f"{path} is not served here; tracking, model registry, artifacts, accounts and their pages are"
    return _response(404, {"error_code": "ENDPOINT_NOT_FOUND", "message": text})


def with_middleware(app: FastAPI) -> FastAPI:
    """The app with the allowlist before everything else."""
    app.add_middleware(PageSettings)
    app.add_middleware(BodyLimit)
    app.add_middleware(Allowlist)  # the last one added runs first
    return app
