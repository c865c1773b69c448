"""The app of `understudy ui`: MLflow's pages behind the allowlist, for requests with the token that it printed.

It serves loopback only and has no accounts, but every user of the machine can reach loopback. Without a token they
could read the files of the user who started it, through an experiment whose files lie elsewhere, and move `champion`.
The token comes with the page's address, and stays in the browser as a cookie; other programs send it as a password.
"""

import base64
import os
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from fastapi import FastAPI
from mlflow.server.fastapi_app import create_fastapi_app
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from understudy.registry.middleware.allowlist import with_middleware
from understudy.registry.server import UI_TOKEN

COOKIE = "understudy-ui"
# At a loopback address MLflow's assistant, which is not served here, would open by itself on the first visit.
COOKIE_PAGE = """<!DOCTYPE html><title>MLflow</title><script>
localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
location.replace("/" + location.hash);
</script>
"""
PRIVATE_HEADERS = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
"""For the page whose address contains the token."""


def create_app() -> FastAPI:
    """The app, for `mlflow server --app-name understudy-pages`."""
    app = with_middleware(create_fastapi_app())
    app.add_middleware(TokenRequired, token=os.environ[UI_TOKEN])
    return app


class TokenRequired:
    """ASGI middleware that passes requests with the token, and health checks."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, store its token as a cookie, or refuse it."""
        if scope["type"] == "lifespan" or scope["path"] == "/health" or self._has_token(Headers(scope=scope)):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["path"] == "/" and self._is_token(parse_qs(scope["query_string"].decode()).get("token", [""])[0]):
            response = HTMLResponse(COOKIE_PAGE, headers=PRIVATE_HEADERS)
            response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            await response(scope, receive, send)
        else:
            text = "These pages are for the user of understudy ui: open the address that it printed, with its token.\n"
            await PlainTextResponse(text, 403)(scope, receive, send)

    def _has_token(self, headers: Headers) -> bool:
        return self._is_token(_cookie(headers)) or self._is_token(_password(headers))

    def _is_token(self, value: str) -> bool:
        return secrets.compare_digest(value.encode(), self.token.encode())


def _cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def _password(headers: Headers) -> str:
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    try:
        return base64.b64decode(credentials).decode().partition(":")[2] if scheme.lower() == "basic" else ""
    except ValueError:
        return ""
