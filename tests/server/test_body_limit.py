"""How long a request's body may be, on a real server, before and after it has an account."""

import asyncio
import json
import secrets
from base64 import b64encode
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from tests.registry.submitted import Server, connect
from tests.server.accounts import TRAINER, ask, done, with_account
from understudy.registry.middleware import body_limit
from understudy.registry.middleware.body_budget import CAPACITY
from understudy.registry.middleware.body_limit import LIMIT, BodyLimit

SEARCH = "/api/2.0/mlflow/runs/search"
PIECE = b" " * 2**16
FILE = "/api/2.0/mlflow-artifacts/artifacts/0/a/artifacts/f"

TRAINERS = {"Authorization": "Basic " + b64encode(f"{TRAINER}:password-of-{TRAINER}".encode()).decode()}


def ask_with(server: Server, method: str, path: str, headers: dict[str, str], *pieces: bytes) -> tuple[int, str]:
    """The answer to a request that sent these pieces and did not end."""
    connection = HTTPConnection(urlsplit(server.uri).netloc, timeout=60)
    try:
        connection.putrequest(method, path)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        for piece in pieces:
            connection.send(piece)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def post(server: Server, body: bytes, path: str = SEARCH) -> tuple[int, str]:
    return ask_with(server, "POST", path, {**TRAINERS, "Content-Length": str(len(body))}, body)


@pytest.mark.parametrize("path", [SEARCH, SEARCH.replace("api", "ajax-api"), "/graphql"])
def test_who_has_no_account_cannot_fill_the_servers_memory(guarded: Server, path: str) -> None:
    status, text = ask_with(guarded, "POST", path, {"Content-Length": str(LIMIT + 1)})
    assert (status, "a body has at most" in text) == (413, True)


def test_a_body_of_who_has_no_account_is_refused_before_it_comes(guarded: Server) -> None:
    """Nothing of it was read: this one never ends."""
    assert ask_with(guarded, "POST", SEARCH, {"Content-Length": str(LIMIT)})[0] == 401
    assert ask_with(guarded, "POST", SEARCH, {"Transfer-Encoding": "chunked"})[0] == 401


def test_a_query_of_graphql_is_short(guarded: Server) -> None:
    query = json.dumps({"query": "{" + "a " * 2**15 + "}"}).encode()
    status, text = post(guarded, query, "/graphql")
    assert (status, "a body has at most 65536 bytes" in text) == (413, True)
    short = json.dumps({"query": "{mlflowSearchModelVersions(input: {}) {modelVersions {name}}}"}).encode()
    assert post(guarded, short, "/graphql")[0] == 200


def test_a_body_of_unsaid_length_is_counted_as_it_comes(guarded: Server) -> None:
    pieces = [b"%x\r\n%b\r\n" % (len(PIECE), PIECE)] * (LIMIT // len(PIECE) + 1)
    status, text = ask_with(guarded, "POST", SEARCH, {**TRAINERS, "Transfer-Encoding": "chunked"}, *pieces)
    assert (status, "a body has at most" in text) == (413, True)


def test_a_file_of_who_has_no_account_is_refused_before_it_comes(guarded: Server) -> None:
    assert ask_with(guarded, "PUT", FILE, {"Content-Length": str(10 * LIMIT)})[0] == 401


def test_a_body_as_large_as_it_may_be_is_read(guarded: Server) -> None:
    body = json.dumps({"experiment_ids": ["0"]}).encode()
    assert "runs" not in post(guarded, body + b" " * (LIMIT - len(body)))[1]


def test_a_body_that_is_nested_too_deep_is_refused_in_words(guarded: Server) -> None:
    status, text = post(guarded, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert (status, "nested" in text) == (400, True)


def test_a_file_may_be_larger(guarded: Server) -> None:
    client = connect(with_account(guarded, TRAINER))
    created = done(ask(guarded, TRAINER, "POST", "experiments/create", name=f"large-{secrets.token_hex(4)}"))
    run = client.create_run(created["experiment_id"]).info.run_id
    client.log_text(run, "x" * (LIMIT + 1), "large.txt")
    assert [file.file_size for file in client.list_artifacts(run)] == [LIMIT + 1]


# Without a server


async def answered(limit: BodyLimit, *pieces: bytes) -> int:
    """The status for a body of 1 MiB of which these pieces come."""
    coming, sent = list(pieces), []

    async def receive() -> Message:
        if not coming:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": coming.pop(0), "more_body": True}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-length", str(2**20).encode())]
    await limit({"type": "http", "method": "POST", "path": SEARCH, "headers": headers}, receive, send)
    return int(sent[0]["status"])


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that reads the body."""
    while (await receive()).get("more_body"):
        pass
    await PlainTextResponse("read")(scope, receive, send)


def test_a_body_that_is_held_back_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "TIMEOUT", 0.1)
    limit = BodyLimit(reading)
    assert asyncio.run(answered(limit, b"{")) == 408
    assert asyncio.run(limit.budget.reserve(CAPACITY)) == CAPACITY, "its room was given back"


def test_a_body_without_room_waits_and_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "TIMEOUT", 0.1)
    limit = BodyLimit(reading)

    async def ask() -> int:
        reserved = await limit.budget.reserve(CAPACITY)
        status = await answered(limit)  # of which nothing comes
        limit.budget.release(reserved)
        return status

    assert asyncio.run(ask()) == 503
