"""Prometheus metrics of the MLflow server: requests by route and status, sign-in failures, audit lines.

They have a separate address, since the server's is open to every account and to the Ingress. Labels contain no model,
run, account or address: routes come from the allowlist, and any other value that a client chooses is counted as
`other`. docs/operating/monitoring.md explains why MLflow's exporter is not used.
"""

import re
import time

from fastapi import FastAPI
from prometheus_client import Counter, Gauge, Histogram
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy import metrics
from understudy.errors import InputError
from understudy.metrics import REGISTRY
from understudy.registry.middleware.allowlist import ARTIFACTS, PAGES, PROGRAMS, ROLES

API = re.compile(r"/(?:ajax-)?api/[23]\.0/(mlflow-artifacts|mlflow)/(?:understudy/)?([a-z-]+)")
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)  # seconds; an upload takes the longest

REQUESTS = Counter(
    "understudy_mlflow_requests", "Requests that were answered.", ["route", "method", "status"], registry=REGISTRY
)
DURATION = Histogram(
    "understudy_mlflow_request_duration_seconds",
    "From a request to the end of its answer.",
    ["route"],
    registry=REGISTRY,
    buckets=BUCKETS,
)
IN_PROGRESS = Gauge("understudy_mlflow_requests_in_progress", "Requests that are being answered.", registry=REGISTRY)
SIGN_IN_FAILURES = Counter(
    "understudy_mlflow_sign_in_failures",
    "Requests that showed credentials and were answered with 401.",
    ["scheme"],
    registry=REGISTRY,
)
AUDIT_LINES = Counter("understudy_mlflow_audit_lines", "Lines that this server added to the audit.", registry=REGISTRY)


def _routes(table: str) -> set[str]:
    return {path.split("/")[0] for line in table.strip().splitlines() for path in line.split()[1:]}


ROUTES = _routes(PROGRAMS) | _routes(ROLES) | {"audit"}
"""Route labels of the API: the first segment of each path in the allowlist."""
PATHS = {path for line in (PAGES + ARTIFACTS).splitlines() for path in line.split()[1:] if "{" not in path}


def route(path: str) -> str:
    """The route label of a request: one of ROUTES, artifacts, page, health, or other."""
    match = API.match(path)
    if match and match[1] == "mlflow-artifacts":
        return "artifacts"
    if match and match[2] in ROUTES:
        return match[2]
    if path == "/health":
        return "health"
    return "page" if path in PATHS or path.startswith("/static-files/") else "other"


class RequestMetrics:
    """ASGI middleware that counts and times all requests, including refused ones."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it when it is answered or interrupted."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, began = 500, time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with IN_PROGRESS.track_inprogress():
            try:
                await self.app(scope, receive, watch)
            finally:
                _count(scope, status, time.perf_counter() - began)


def _count(scope: Scope, status: int, seconds: float) -> None:
    label = route(scope["path"])
    REQUESTS.labels(label, scope["method"] if scope["method"] in METHODS else "other", status).inc()
    DURATION.labels(label).observe(seconds)
    authorization = Headers(scope=scope).get("authorization")
    if status == 401 and authorization:  # without it: a browser that has not prompted for a name yet
        scheme = authorization.partition(" ")[0].lower()
        SIGN_IN_FAILURES.labels(scheme if scheme in ("basic", "bearer") else "other").inc()


def with_metrics(app: FastAPI) -> FastAPI:
    """The app with its requests counted, and with the metrics served at the environment's address.

    Raises:
        InputError: the address is taken by another worker, whose metrics would not include this one's.
    """
    app.add_middleware(RequestMetrics)
    if metrics.address() and not metrics.serve():
        raise InputError(f"{metrics.VARIABLE}: this address is in use; a server with metrics needs --workers=1")
    return app
