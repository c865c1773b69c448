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

from understudy.registry.middleware.allowlist import behind_front
from understudy.registry.server import UI_TOKEN

COOKIE = "understudy-ui"
# At a loopback address MLflow's assistant, which is not served here, would open by itself on the first visit.
OPENED = """<!DOCTYPE html><title>MLflow</title><script>
localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
location.replace("/" + location.hash);
</script>
"""
UNSEEN = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}  # for a page whose address contains the token


def create_app() -> FastAPI:
    """The app, for `mlflow server --app-name understudy-pages`."""
    app = behind_front(create_fastapi_app())
    app.add_middleware(Locked, token=os.environ[UI_TOKEN])
    return app


class Locked:
    """ASGI middleware that passes requests with the token, and health checks."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, store its token as a cookie, or refuse it."""
        if scope["type"] == "lifespan" or scope["path"] == "/health" or self._knows(Headers(scope=scope)):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["path"] == "/" and self._is_token(parse_qs(scope["query_string"].decode()).get("token", [""])[0]):
            opened = HTMLResponse(OPENED, headers=UNSEEN)
            opened.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            await opened(scope, receive, send)
        else:
            said = "These pages are for who started understudy ui: open the address that it printed, with its token.\n"
            await PlainTextResponse(said, 403)(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        return self._is_token(_cookie(headers)) or self._is_token(_password(headers))

    def _is_token(self, said: str) -> bool:
        return secrets.compare_digest(said.encode(), self.token.encode())


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _password(headers: Headers) -> str:
    kind, _, said = headers.get("authorization", "").partition(" ")
    try:
        return base64.b64decode(said).decode().partition(":")[2] if kind.lower() == "basic" else ""
    except ValueError:
        return ""
