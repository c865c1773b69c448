import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Stands in for MLflow's server: it starts a worker, answers every request, and ends slowly.
SERVER = """
import http.server, os, signal, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("pids", "w").write(f"{os.getpid()} {worker.pid}")
port = int(sys.argv[sys.argv.index("--port") + 1])
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    (tmp_path / ".understudy").mkdir()
    path = tmp_path / ".understudy" / "mlflow.db"
    sqlite3.connect(path).close()
    path.touch()
    return path


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start(folder: Path, server: str, *arguments: str) -> "subprocess.Popen[str]":
    (folder / "mlflow.py").write_text(server)
    code = "from understudy.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_the_pages_are_and_leaves_no_process(tmp_path: Path, port: int, number: int) -> None:
    with start(tmp_path, SERVER, "ui", "--port", str(port)) as process:
        assert process.stdout is not None
        pages = rf"MLflow's pages, until Ctrl-C: http://127.0.0.1:{port}/\?token=[\w-]{{22}}\n"
        assert re.fullmatch(pages, process.stdout.readline())
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(is_there(pid) for pid in pids)
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    end = time.monotonic() + 10
    while any(is_there(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(is_there(pid) for pid in pids)


@pytest.mark.usefixtures("database")
def test_a_server_that_fails_is_told_with_its_last_words(tmp_path: Path, port: int) -> None:
    with start(tmp_path, "import sys; sys.exit('no such table')", "ui", "--port", str(port)) as process:
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == "error: MLflow's server ended with code 1\nno such table\n"


@pytest.mark.usefixtures("database")
def test_a_taken_port_is_named_with_the_way_out(understudy) -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        outcome = understudy("ui", "--port", str(port))
    assert outcome.code == 2
    assert outcome.err == f"error: port {port} is taken; take another one: understudy ui --port {port % 65535 + 1}\n"


def test_without_anything_recorded_there_are_no_pages(understudy) -> None:
    outcome = understudy("ui")
    assert outcome.code == 2
    assert "mlflow.db: nothing was recorded yet; understudy run recipes/digits.yaml does" in outcome.err


def test_a_server_has_pages_of_its_own(understudy) -> None:
    outcome = understudy("--tracking-uri", "http://me:secret@server:5000", "ui")
    assert (outcome.code, outcome.err) == (
        2,
        "error: http://server:5000: this server has its own pages; open it in a browser\n",
    )
