"""How much a request may bring, to a real server, before and after it has an account."""

import json
import secrets
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.registry.server_app.accounts import TRAINER, ask, done, with_account
from tests.registry.submitted import Server, connect
from understudy.registry.server_app.body_limit import LIMIT

SEARCH = "/api/2.0/mlflow/runs/search"
PIECE = b" " * 2**16
FILE = "/api/2.0/mlflow-artifacts/artifacts/0/a/artifacts/f"


def ask_with(server: Server, method: str, path: str, headers: dict[str, str], *pieces: bytes) -> tuple[int, str]:
    """What is answered to a request of which these pieces were sent, and no end."""
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


def post(server: Server, body: bytes) -> tuple[int, str]:
    return ask_with(server, "POST", SEARCH, {"Content-Length": str(len(body))}, body)


@pytest.mark.parametrize("path", [SEARCH, SEARCH.replace("api", "ajax-api"), "/graphql"])
def test_who_has_no_account_cannot_fill_the_servers_memory(guarded: Server, path: str) -> None:
    status, said = ask_with(guarded, "POST", path, {"Content-Length": str(LIMIT + 1)})
    assert (status, "a request may bring" in said) == (413, True)


def test_a_body_of_unsaid_length_is_counted_as_it_comes(guarded: Server) -> None:
    pieces = [b"%x\r\n%b\r\n" % (len(PIECE), PIECE)] * (LIMIT // len(PIECE) + 1)
    status, said = ask_with(guarded, "POST", SEARCH, {"Transfer-Encoding": "chunked"}, *pieces)
    assert (status, "a request may bring" in said) == (413, True)


def test_a_file_of_who_has_no_account_is_refused_before_it_comes(guarded: Server) -> None:
    assert ask_with(guarded, "PUT", FILE, {"Content-Length": str(10 * LIMIT)})[0] == 401


def test_a_body_as_large_as_it_may_be_is_read(guarded: Server) -> None:
    body = json.dumps({"experiment_ids": ["0"]}).encode()
    assert post(guarded, body + b" " * (LIMIT - len(body)))[0] == 401


def test_a_body_that_is_nested_too_deep_is_refused_in_words(guarded: Server) -> None:
    status, said = post(guarded, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert (status, "nested" in said) == (400, True)


def test_a_file_may_be_larger(guarded: Server) -> None:
    client = connect(with_account(guarded, TRAINER))
    made = done(ask(guarded, TRAINER, "POST", "experiments/create", name=f"large-{secrets.token_hex(4)}"))
    run = client.create_run(made["experiment_id"]).info.run_id
    client.log_text(run, "x" * (LIMIT + 1), "large.txt")
    assert [file.file_size for file in client.list_artifacts(run)] == [LIMIT + 1]
