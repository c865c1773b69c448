import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from understudy.errors import Forbidden, UnderstudyError
from understudy.registry.client import server_at


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """A server with the same answer to every request."""
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
    ("answer", "message"),
    [
        (
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
            "refuses access .401.; set MLFLOW_TRACKING_USERNAME",
        ),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "not an MLflow tracking server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "not an MLflow tracking server"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "cannot be used .503 Busy"),
        (b"", "cannot be used"),
    ],
)
def test_a_servers_answer_becomes_a_message(answering: Callable[[bytes], str], answer: bytes, message: str) -> None:
    with pytest.raises(UnderstudyError, match=message):
        server_at(answering(answer)).check()


@pytest.mark.parametrize(("status", "forbidden"), [(401, True), (403, True), (404, False), (500, False), (503, False)])
def test_a_refusal_is_distinguished_from_a_server_that_cannot_answer(
    answering: Callable[[bytes], str], status: int, forbidden: bool
) -> None:
    with pytest.raises(UnderstudyError) as caught:
        server_at(answering(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)).check()
    assert isinstance(caught.value, Forbidden) == forbidden


def test_a_frozen_server_is_given_up_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.registry.rest.SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(UnderstudyError, match="timed out"):
        server_at(f"http://127.0.0.1:{listener.getsockname()[1]}").check()


def test_credentials_follow_no_redirect() -> None:
    headers = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers.append(self.headers.get("Authorization"))
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
    assert len(headers) == 1
