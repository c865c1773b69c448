"""Limits on request bodies: none for files, and for all else the most that MLflow's client ever sends.

A body stays in memory until its request is answered. So it must arrive in time, and large ones wait for room
(`body_budget.py`). No body is read before authentication, which runs inside this middleware.
"""

import asyncio

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy.registry.middleware.body_budget import Budget

LIMIT = 4 * 2**20
"""In bytes. MLflow's client sends at most 1 MB of metrics in a request."""
GRAPHQL = "/graphql"
GRAPHQL_LIMIT = 64 * 2**10
"""The same for a GraphQL query, which MLflow parses whole before it checks the complexity."""
GRAPHQL_FACTOR = 50
"""The room that a GraphQL query takes, as a multiple of JSON of the same size."""
UPLOAD_PATHS = ("/api/2.0/mlflow-artifacts/artifacts/", "/ajax-api/2.0/mlflow-artifacts/artifacts/")
"""Upload paths. Files are streamed to storage; without authentication a request is refused before a byte is read."""
TIMEOUT = 60.0
"""How long a large body waits for room, and how long any body may then take to arrive."""


class _RefusedError(Exception):
    """A refused body, with the answer to its request."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer = JSONResponse({"error_code": code, "message": message}, status, headers={"Connection": "close"})


class BodyLimit:
    """ASGI middleware that answers an oversized request with 413 (RFC 9110, 15.5.14)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.budget = Budget()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and stop reading it if it is too long."""
        if scope["type"] != "http" or (scope["method"] == "PUT" and scope["path"].startswith(UPLOAD_PATHS)):
            await self.app(scope, receive, send)
            return
        limit = GRAPHQL_LIMIT if scope["path"] == GRAPHQL else LIMIT
        size = _declared_length(Headers(scope=scope))
        if size is not None and size > limit:
            await _too_large(limit).answer(scope, receive, send)
            return
        expected = (limit if size is None else size) * (GRAPHQL_FACTOR if scope["path"] == GRAPHQL else 1)
        body = _Body(receive, limit, expected, self.budget)
        answered = False

        async def watched(message: Message) -> None:
            nonlocal answered
            if answered or not body.refused:  # drop the app's answer to a refused body
                answered = True
                await send(message)

        try:
            await self.app(scope, body.receive, watched)
        except* _RefusedError:  # in a group: MLflow's middleware runs each request in a task
            pass
        finally:
            self.budget.release(body.reserved)
        if not answered and body.refused:
            await body.refused.answer(scope, receive, send)


class _Body:
    """A body as it arrives, from the first read on."""

    def __init__(self, receive: Receive, limit: int, expected: int, budget: Budget) -> None:
        self._receive, self._limit, self._expected, self._budget = receive, limit, expected, budget
        self._received, self._deadline = 0, 0.0
        self._complete = False
        self.reserved = 0
        self.refused: _RefusedError | None = None

    async def receive(self) -> Message:
        if self._complete:  # only the client's disconnect can follow
            return await self._receive()
        if self.refused:
            raise self.refused
        if not self._deadline:
            await self._reserve()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise self._refuse(408, "REQUEST_TIMEOUT", f"a request's body must arrive within {TIMEOUT:g} s") from None
        self._received += len(message.get("body", b""))
        if self._received > self._limit:
            self.refused = _too_large(self._limit)
            raise self.refused
        self._complete = not message.get("more_body", False)
        return message

    async def _reserve(self) -> None:
        """Wait for room, and set the body's deadline."""
        try:
            async with asyncio.timeout(TIMEOUT):
                self.reserved = await self._budget.reserve(self._expected)
        except TimeoutError:
            text = f"for {TIMEOUT:g} s there was no room for a body of this size; try again"
            raise self._refuse(503, "TEMPORARILY_UNAVAILABLE", text) from None
        self._deadline = asyncio.get_running_loop().time() + TIMEOUT

    def _refuse(self, status: int, code: str, message: str) -> _RefusedError:
        self.refused = _RefusedError(status, code, message)
        return self.refused


def _declared_length(headers: Headers) -> int | None:
    """The declared length of a body; None for a chunked one."""
    declared = headers.get("content-length", "")
    if declared.isdecimal():
        return int(declared)
    return None if "transfer-encoding" in headers else 0


def _too_large(limit: int) -> _RefusedError:
    return _RefusedError(413, "INVALID_PARAMETER_VALUE", f"a body has at most {limit} bytes here; files have no limit")
