"""The settings in MLflow's page; that its scripts know them is tested in tests/registry/test_ui.py."""

import asyncio
from typing import Any

import pytest

from understudy.registry.middleware.page_settings import SCRIPT, PageSettings

PAGE = b"<!doctype html><html><head><title>MLflow</title></head><body></body></html>"


def answered(method: str, path: str, status: int = 200, page: bytes = PAGE) -> tuple[dict[bytes, bytes], bytes, Any]:
    """The headers and the body behind the middleware, and the headers that the app was sent."""
    sent: list[dict[str, Any]] = []
    forwarded: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        forwarded.append(dict(scope["headers"]))
        headers = [(b"content-length", str(len(page)).encode()), (b"etag", b"1"), (b"x-frame-options", b"DENY")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for part in (page[:9], page[9:]):
            await send({"type": "http.response.body", "body": part, "more_body": part is page[:9]})

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [(b"if-none-match", b"1"), (b"cookie", b"a")]}
    asyncio.run(PageSettings(app)(scope, receive, send))
    [start] = [message for message in sent if message["type"] == "http.response.start"]
    return dict(start["headers"]), b"".join(message.get("body", b"") for message in sent), forwarded[0]


def test_the_page_has_the_settings_first_and_is_whole() -> None:
    headers, body, forwarded_headers = answered("GET", "/")
    assert body == PAGE.replace(b"<head>", f"<head><script>{SCRIPT}</script>".encode())
    assert headers == {b"content-length": str(len(body)).encode(), b"x-frame-options": b"DENY"}
    assert forwarded_headers == {b"cookie": b"a"}, "a page that the browser has from before would be as MLflow made it"


@pytest.mark.parametrize(
    ("method", "path", "status", "page"),
    [
        ("GET", "/version", 200, PAGE),
        ("HEAD", "/", 200, PAGE),
        ("GET", "/", 401, PAGE),
        ("GET", "/", 200, b"Unable to display MLflow UI"),
    ],
)
def test_all_else_stays_as_it_is(method: str, path: str, status: int, page: bytes) -> None:
    headers, body, _ = answered(method, path, status, page)
    assert body == page
    assert headers[b"content-length"] == str(len(page)).encode()
    assert headers[b"etag"] == b"1"
