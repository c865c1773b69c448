"""Authentication middleware: it checks the headers before the body is read, and outside the event loop.

MLflow authenticates in the event loop, where a password hash or a slow API server blocked all requests. It also reads
the whole body first, even of an unknown sender. So unauthenticated requests are answered here, by the headers alone.
"""

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import FastAPI
from mlflow.server import auth
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from werkzeug.datastructures import Authorization

from understudy_server.audit import Origin
from understudy_server.sign_in import (
    ORIGIN,
    SENDER,
    UNAUTHENTICATED,
    Refusal,
    cached_account,
    parsed_credentials,
    verified_account,
)
from understudy_server.teams import Account

PASSWORDS = 2
"""Concurrent password checks: each takes 0.1 s of a core, and 32 MiB."""
TOKENS = 8
"""Concurrent token checks. They wait apart from passwords, so a slow issuer delays only tokens."""


class Authentication:
    """ASGI middleware that passes authenticated requests, and all requests for unprotected routes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.passwords, self.tokens = CapacityLimiter(PASSWORDS), CapacityLimiter(TOKENS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its sender, or refuse it."""
        if scope["type"] != "http" or auth.is_unprotected_route(scope["path"]):
            await self.app(scope, receive, send)
            return
        headers, client = Headers(scope=scope), scope.get("client")
        ORIGIN.set(Origin(client[0] if client else None, headers.get("x-forwarded-for")))
        credentials = parsed_credentials(headers.get("authorization"))
        account = await self._account(credentials) if credentials else UNAUTHENTICATED
        if isinstance(account, Refusal):
            await _response(account)(scope, receive, send)
            return
        token = SENDER.set(account)
        try:
            await self.app(scope, receive, send)
        finally:
            SENDER.reset(token)

    async def _account(self, credentials: Authorization) -> Account | Refusal:
        account = cached_account(credentials)
        if account is not None:
            return account
        limiter = self.tokens if credentials.token else self.passwords
        return await anyio.to_thread.run_sync(verified_account, credentials, limiter=limiter)


def _response(refusal: Refusal) -> Response:
    if (
        refusal is UNAUTHENTICATED
    ):  # in MLflow's form: browsers then prompt for a password, and clients print their hint
        return PlainTextResponse(refusal.message, refusal.status, {"WWW-Authenticate": 'Basic realm="mlflow"'})
    response = JSONResponse({"error_code": refusal.code, "message": refusal.message}, refusal.status)
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer error="invalid_token"'
    return response


def with_authentication(app: FastAPI) -> FastAPI:
    """The app with authentication before anything that reads a request."""
    app.add_middleware(Authentication)
    return app
