"""Browser settings for MLflow's pages, set before their script runs: no usage data, and no notice about it.

The server sends no usage data (MLFLOW_DISABLE_TELEMETRY) and serves no route that accepts any, but the pages show
"MLflow collects usage data" without checking that.
"""

import json

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SETTINGS = {
    "mlflow.settings.telemetry.enabled_v1": False,
    "mlflow.telemetry.info.alert.dismissed_v1": True,
}
"""In the browser's localStorage, as useLocalStorage of MLflow's pages reads it: a key with its version, and JSON."""
SCRIPT = "".join(
    f"localStorage.setItem({json.dumps(key)},{json.dumps(json.dumps(SETTINGS[key]))});" for key in SETTINGS
)
HEAD = b"<head>"
CONDITIONAL_HEADERS = (b"if-none-match", b"if-modified-since", b"range", b"accept-encoding")


class PageSettings:
    """ASGI middleware that inserts a script for these settings before all others of MLflow's only page."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; if it returns the page, add the script."""
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/":
            await self.app(scope, receive, send)
            return
        start, content = list[Message](), list[bytes]()

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.append(message)
            else:
                content.append(message.get("body", b""))

        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in CONDITIONAL_HEADERS]
        await self.app({**scope, "headers": headers}, receive, collect)
        for message in _with_script(start, b"".join(content)):
            await send(message)


def _with_script(start: list[Message], page: bytes) -> list[Message]:
    for message in start:
        headers = MutableHeaders(raw=message["headers"])
        if message["status"] == 200 and HEAD in page:
            page = page.replace(HEAD, HEAD + f"<script>{SCRIPT}</script>".encode(), 1)
            headers["content-length"] = str(len(page))
            for name in ("etag", "last-modified"):
                del headers[name]
        message["headers"] = headers.raw
    return [*start, {"type": "http.response.body", "body": page}]
