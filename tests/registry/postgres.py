"""A PostgreSQL of the system's own packages, for as long as a test needs it."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def program(name: str) -> str:
    """A program of the newest PostgreSQL here."""
    programs = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not programs:
        pytest.skip("PostgreSQL is not installed")
    return str(programs[-1])


@contextmanager
def running() -> Iterator[str]:
    """A server with an empty database; its address."""
    initdb, server = program("initdb"), program("postgres")
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))  # the path of a socket is short
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(folder, "postgres", "postgres")
    data, log = folder / "data", folder / "log"
    command = [*as_user, initdb, "-A", "trust", "-U", "mlflow", "--no-sync", "-D", str(data)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*as_user, server, "-D", str(data), *options], stdout=stream, stderr=stream, cwd=folder
        )
    try:
        while not (folder / ".s.PGSQL.5432").exists():
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield f"postgresql://mlflow@/postgres?host={folder}"
    finally:
        process.send_signal(signal.SIGINT)  # its fast shutdown; after SIGTERM it would wait for who is connected
        process.wait()
        shutil.rmtree(folder)
