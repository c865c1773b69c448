"""How much a request may bring: files any amount, everything else as much as MLflow's client ever sends.

A body is held in memory, and read before anybody is asked for an account: without a limit, who has none could fill the
server's memory.
"""

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LIMIT = 4 * 2**20
"""In bytes. MLflow's client sends at most 1 MB of metrics at once."""
FILES = ("/api/2.0/mlflow-artifacts/artifacts/", "/ajax-api/2.0/mlflow-artifacts/artifacts/")
"""Where files are put, which are streamed to their place; who has no account is refused before a byte is read."""


class _TooLarge(Exception):
    """More came than a request may bring."""


class BodyLimit:
    """ASGI middleware that answers a request that brings too much with 413 (RFC 9110, 15.5.14)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and stop reading it when it is too long."""
        if scope["type"] != "http" or (scope["method"] == "PUT" and scope["path"].startswith(FILES)):
            await self.app(scope, receive, send)
            return
        said = Headers(scope=scope).get("content-length", "")
        if said.isdecimal() and int(said) > LIMIT:
            await _refusal()(scope, receive, send)
            return
        came, answered = 0, False

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > LIMIT:
                raise _TooLarge
            return message

        async def watched(message: Message) -> None:
            nonlocal answered
            if answered or came <= LIMIT:  # what is answered to a body that broke off is not what is said
                answered = True
                await send(message)

        try:
            await self.app(scope, counted, watched)
        except* _TooLarge:  # in a group: MLflow's middleware has a task for each request
            pass
        if not answered and came > LIMIT:
            await _refusal()(scope, receive, send)


def _refusal() -> JSONResponse:
    said = f"a request may bring {LIMIT} bytes, and files any amount"
    body = {"error_code": "INVALID_PARAMETER_VALUE", "message": said}
    return JSONResponse(body, 413, headers={"Connection": "close"})
