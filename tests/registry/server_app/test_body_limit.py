"""How much a request may bring, to a real server, before and after it has an account."""

import json
import secrets
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.registry.server_app.accounts import TRAINER, ask, done, with_account
from tests.registry.submitted import Server, connect
from understudy.registry.server_app.body_limit import LIMIT

SEARCH = "/api/2.0/mlflow/runs/search"
PIECE = b" " * 2**16


def chunks(size: int) -> Iterator[bytes]:
    for _ in range(size // len(PIECE)):
        yield PIECE


def post(server: Server, path: str, body: object, **headers: str) -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(server.uri).netloc, timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", **headers})  # type: ignore[arg-type]
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (BrokenPipeError, ConnectionResetError):
        return 413, "a request may bring"  # the server hung up while it was told more
    finally:
        connection.close()


@pytest.mark.parametrize("path", [SEARCH, SEARCH.replace("api", "ajax-api"), "/graphql"])
def test_who_has_no_account_cannot_fill_the_servers_memory(guarded: Server, path: str) -> None:
    status, said = post(guarded, path, b"{" + b" " * LIMIT + b"}")
    assert (status, "a request may bring" in said) == (413, True)


def test_a_body_of_unsaid_length_is_counted_as_it_comes(guarded: Server) -> None:
    status, said = post(guarded, SEARCH, chunks(LIMIT + 10 * len(PIECE)), **{"Transfer-Encoding": "chunked"})
    assert (status, "a request may bring" in said) == (413, True)


def test_a_body_as_large_as_it_may_be_is_read(guarded: Server) -> None:
    body = json.dumps({"experiment_ids": ["0"]}).encode()
    assert post(guarded, SEARCH, body + b" " * (LIMIT - len(body)))[0] == 401


def test_a_body_that_is_nested_too_deep_is_refused_in_words(guarded: Server) -> None:
    status, said = post(guarded, SEARCH, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert (status, "nested" in said) == (400, True)


def test_a_file_may_be_larger(guarded: Server) -> None:
    client = connect(with_account(guarded, TRAINER))
    made = done(ask(guarded, TRAINER, "POST", "experiments/create", name=f"large-{secrets.token_hex(4)}"))
    run = client.create_run(made["experiment_id"]).info.run_id
    client.log_text(run, "x" * (LIMIT + 1), "large.txt")
    assert [file.file_size for file in client.list_artifacts(run)] == [LIMIT + 1]
