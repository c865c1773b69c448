"""Who comes in, and that who waits outside holds up nobody, on a real server."""

import base64
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import jwt
import pytest

from tests.registry.submitted import Server
from tests.server.accounts import ADMIN, TRAINER, ask
from tests.unit.kube.api_server import ApiServer

FILE = "/api/2.0/mlflow-artifacts/artifacts/0/a/artifacts/f"
FLASK = "/api/2.0/mlflow/users/current"


def status(server: Server, path: str, shown: str | None) -> int:
    """The answer to a header Authorization."""
    connection = HTTPConnection(urlsplit(server.uri).netloc, timeout=15)
    try:
        connection.request("GET", path, headers={"Authorization": shown} if shown else {})
        return connection.getresponse().status
    finally:
        connection.close()


def basic(text: bytes) -> str:
    return "Basic " + base64.b64encode(text).decode()


def nobodys_token(number: int) -> str:
    claims = {"iss": "somebody", "exp": time.time() + 600, "number": number}
    return "Bearer " + jwt.encode(claims, "a key".ljust(64), "HS256")


@pytest.mark.parametrize("path", [FILE, FLASK])
def test_an_api_server_that_does_not_answer_blocks_no_other_account(
    guarded: Server, kubernetes: ApiServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    started, go_on, reviewed = threading.Semaphore(0), threading.Event(), ApiServer.review

    def slow(server: ApiServer, spec: dict[str, Any]) -> dict[str, Any]:
        started.release()
        assert go_on.wait(60)
        return reviewed(server, spec)

    monkeypatch.setattr(ApiServer, "review", slow)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(status, guarded, path, nobodys_token(number)) for number in range(4)]
        try:
            for _ in range(4):
                assert started.acquire(timeout=60)
            assert status(guarded, "/health", None) == 200
            assert ask(guarded, TRAINER, "GET", "experiments/search?max_results=1")[0] == 200
        finally:
            go_on.set()
        assert {answer.result() for answer in waiting} == {401}


@pytest.mark.parametrize(
    "shown",
    [
        None,
        "Bearer",
        "Bearer ",
        "Negotiate x",
        'Digest username="admin"',
        f'Digest username="{ADMIN}", password="password-of-{ADMIN}"',
        f"Foo username={ADMIN}, password=password-of-{ADMIN}",
        "Basic",
        "Basic !!!",
        basic(ADMIN.encode()),
        basic(b"\xff\xfe:x"),
        basic(b":x"),
        basic(b"admin\0:x"),
        basic(b"a" * 300 + b":x"),
    ],
)
def test_invalid_passwords_and_tokens_are_refused(guarded: Server, shown: str | None) -> None:
    assert [status(guarded, path, shown) for path in (FILE, FLASK, "/")] == [401, 401, 401]
