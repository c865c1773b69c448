"""Where the server is, and what is said of one that cannot be used."""

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.submitted import Pipeline, Server
from understudy.errors import InputError, UnderstudyError
from understudy.registry.champion import champion
from understudy.registry.client import server_at
from understudy.registry.register import is_registered
from understudy.registry.server import identity, public_uri, redacted, tracking_uri

words = st.text("abcdefghij0123456789", min_size=4, max_size=12)


def test_the_servers_address_is_given_or_from_the_environment_or_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tracking_uri(tmp_path, None) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://a:5000/")
    assert tracking_uri(tmp_path, None) == "http://a:5000"
    assert tracking_uri(tmp_path, "https://b/prefix") == "https://b/prefix"
    monkeypatch.chdir(tmp_path)
    assert tracking_uri(tmp_path, "sqlite:///own.db") == f"sqlite:///{tmp_path}/own.db"


@given(words, words, st.sampled_from(["http", "https", "postgresql", "mysql+pymysql"]))
def test_credentials_are_not_public(user: str, password: str, scheme: str) -> None:
    uri = f"{scheme}://{user}:{password}@Example.org:8080/path"
    assert public_uri(uri) == identity(uri) == f"{scheme}://example.org:8080/path"
    line = redacted(uri, f"cannot reach {uri} as {user} with {password}\nmore")
    assert password not in line.replace(public_uri(uri), "")


def test_a_server_that_does_not_listen_is_named_with_the_way_out() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for uri in (f"http://me:secret@127.0.0.1:{port}", f"postgresql://me:secret@127.0.0.1:{port}/db"):
        with pytest.raises(UnderstudyError, match=rf"127\.0\.0\.1:{port}.*MLflow cannot be used.*run again") as caught:
            server_at(uri).check()
        assert "secret" not in str(caught.value)
        assert caught.value.exit_code == 1


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """A server that says the same whatever it is asked."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(answer: bytes) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    threads = []

    def start(answer: bytes) -> str:
        threads.append(threading.Thread(target=serve, args=(answer,)))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
            "refuses access .401.; set MLFLOW_TRACKING_USERNAME",
        ),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "no MLflow tracking server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "no MLflow tracking server"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "cannot be used .503 Busy"),
        (b"", "cannot be used"),
    ],
)
def test_what_a_server_answers_becomes_a_message(answering: Callable[[bytes], str], answer: bytes, said: str) -> None:
    with pytest.raises(UnderstudyError, match=said):
        server_at(answering(answer)).check()


def test_a_frozen_server_is_given_up_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.registry.rest.SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(UnderstudyError, match="timed out"):
        server_at(f"http://127.0.0.1:{listener.getsockname()[1]}").check()


def test_a_local_database_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="cannot write MLflow's database"):
        server_at(f"sqlite:///{tmp_path}/mlflow.db").check()


def test_processes_that_make_the_local_backend_at_once_all_succeed(tmp_path: Path) -> None:
    code = (
        "from understudy.registry.client import mlflow_at\n"
        f"uri = 'sqlite:///{tmp_path}/home/mlflow.db'\n"
        "server = mlflow_at(uri); print(server.make_run(server.experiment('digits'), 0, {}, 'run'))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outcomes = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outcomes
    assert len({out for out, _ in outcomes}) == 2
    assert [error for _, error in outcomes] == ["", ""]
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["mlflow.db"]
    assert stat.S_ISREG((tmp_path / "home" / "mlflow.db").stat().st_mode)


def test_a_http_server_keeps_versions_and_never_sees_credentials(
    server: Server, make_pipeline: Callable[..., Pipeline], capfd: pytest.CaptureFixture[str]
) -> None:
    secret = server.uri.replace("http://", "http://me:topsecret@")
    pipeline = make_pipeline(secret)
    made = pipeline.register()
    assert made.version == "1"
    assert made.url == f"{server.uri}/#/models/digits/versions/1"
    assert server_at(secret).aliases("digits") == {"challenger": "1"}
    digest = pipeline.model(b"student", _history())
    assert is_registered(secret, made, digest)
    assert champion(secret, "digits") is None
    assert champion(secret, "unheard of") is None
    rejected = pipeline.register(run=pipeline.new_run(), approved=False, weights=b"weak")
    assert is_registered(secret, rejected, "")
    said = capfd.readouterr()
    written = b"".join(
        path.read_bytes() for path in pipeline.run.folder.rglob("*") if path.name != "run.json" and path.is_file()
    )
    kept = b"".join(path.read_bytes() for path in _files(server))
    assert "topsecret" not in said.out + said.err
    assert b"topsecret" not in written + kept
    server.stop()
    began = time.monotonic()
    with pytest.raises(UnderstudyError, match="MLflow cannot be used") as caught:
        pipeline.register(run=pipeline.new_run(), weights=b"late")
    assert "topsecret" not in str(caught.value)
    assert time.monotonic() - began < 60


def _history() -> list[dict[str, float]]:
    from tests.registry.submitted import HISTORY

    return HISTORY


def _files(server: Server) -> list[Path]:
    folder = Path(f"/proc/{server.process.pid}/cwd").resolve()
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "server.log"]


def test_credentials_follow_no_redirect() -> None:
    seen = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/elsewhere")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(UnderstudyError, match=r"MLflow cannot be used \(302"):
            server_at(f"http://user:secret@127.0.0.1:{server.server_port}").check()
        server.shutdown()
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("http://[::1", "this is no address"),
        ("postgresql://u:p@h:abc/x", "this is no address"),
        ("foo://host", "MLflow knows no foo://"),
    ],
)
def test_an_address_that_cannot_be_one_is_wrong_input(tmp_path: Path, uri: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tracking_uri(tmp_path, uri)
