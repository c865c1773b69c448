"""The warm process of a run: it imports the heavy libraries once, and forks a worker for each job.

    python -m understudy.launch.local.warm SOCKET RUN_FOLDER

It lives as long as the run's driver. A worker lives as long as the connection of the step that requested it, and no
longer than this process. Nothing is computed here before a fork, so a forked worker is in every respect a new one.
"""

import json
import os
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from understudy.store import Run
from understudy.store.files import read_json, write_json
from understudy.store.lease import Process

ADDRESS = "warm.json"
GONE = -signal.SIGKILL


def begin(run: Run) -> None:
    """Start the warm process of a run on this machine, unless it was started before."""
    if not run.facts.driver or (run.folder / ADDRESS).exists():
        return
    name = f"understudy-{secrets.token_hex(16)}"
    with (run.folder / "logs" / "warm.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "understudy.launch.local.warm", name, str(run.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    write_json(run.folder / ADDRESS, {"socket": name, "process": Process.of(process.pid).__dict__})


@dataclass(frozen=True)
class Request:
    """A step's request for a worker: one line of JSON over its connection."""

    module: str
    """The module whose main() the worker runs."""
    argument: str
    environment: Mapping[str, str]
    log: str
    """The file that the worker's output is appended to."""


class Worker:
    """A worker forked for this process, used like a subprocess.Popen."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the worker runs."""
        if self.returncode is None:
            self._connection.settimeout(0)
            try:
                self._receive()
            except BlockingIOError:
                return None
        return self.returncode

    def kill(self) -> None:
        """End the worker."""
        if self.returncode is None:
            self._connection.settimeout(None)
            self._connection.shutdown(socket.SHUT_WR)

    def wait(self) -> int:
        """Wait for the worker's end."""
        if self.returncode is None:
            self._connection.settimeout(None)
            self._receive()
        self._connection.close()
        assert self.returncode is not None
        return self.returncode

    def _receive(self) -> None:
        try:
            answer = self._connection.recv(64)
        except ConnectionResetError:
            answer = b""
        self.returncode = int(answer) if answer else GONE


def start(run: Run, module: str, argument: str, environment: dict[str, str], log: Path) -> Worker | None:
    """Request a forked worker; None if the run has no warm process, so that the caller has to start one.

    Args:
        run: the run whose process forks.
        module: the module whose main() the worker runs.
        argument: its one argument.
        environment: the worker's environment.
        log: the file that its output is appended to.
    """
    address = read_json(run.folder / ADDRESS)
    if address is None:
        return None
    connection = _connect(address["socket"], Process(**address["process"]))
    if connection is None:
        return None
    request = Request(module, argument, environment, str(log))
    connection.sendall(json.dumps(asdict(request)).encode() + b"\n")
    return Worker(connection)


def _connect(name: str, server: Process) -> socket.socket | None:
    """A connection, once the server has finished its imports; None if it is gone."""
    connection = socket.socket(socket.AF_UNIX)
    while not server.is_gone():
        try:
            connection.connect(f"\0{name}")
            return connection
        except ConnectionRefusedError:
            time.sleep(0.02)
    connection.close()
    return None


def serve(name: str, driver: Process) -> None:
    """Fork workers until the driver is gone."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")  # in Linux's abstract namespace: nothing is left on the disk
    listener.listen()
    jobs = _Jobs()
    jobs.watched.register(listener, selectors.EVENT_READ)
    while not driver.is_gone():
        for key, _ in jobs.watched.select(timeout=0.25):
            if key.fileobj is listener:
                jobs.begin(listener.accept()[0], listener)
            elif key.fd in jobs.watched.get_map():  # a worker and its step may end together
                jobs.reap(key)


class _Jobs:
    """The running workers: each has a connection to its step and a descriptor of its process (pidfd)."""

    def __init__(self) -> None:
        self.watched = selectors.DefaultSelector()

    def begin(self, connection: socket.socket, listener: socket.socket) -> None:
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.getuid():
            connection.close()
            return
        received = Request(**json.loads(connection.makefile("rb").readline()))
        # The worker dies with its parent, which is this process and not the requesting step.
        request = replace(received, environment={**received.environment, "UNDERSTUDY_PARENT": str(os.getpid())})
        child = os.fork()
        if child == 0:
            listener.close()
            connection.close()
            self.watched.close()
            _work(request)
        descriptor = os.pidfd_open(child)
        self.watched.register(descriptor, selectors.EVENT_READ, (child, descriptor, connection))
        self.watched.register(connection, selectors.EVENT_READ, (child, descriptor, connection))

    def reap(self, key: selectors.SelectorKey) -> None:
        """Clean up after the end of a worker or its step: end the other too."""
        child, descriptor, connection = key.data
        if key.fileobj is connection:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        self.watched.unregister(descriptor)
        self.watched.unregister(connection)
        os.close(descriptor)
        with connection:
            try:
                connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            except BrokenPipeError:
                return


def _work(request: Request) -> None:
    """Become the worker, in the forked child; never returns."""
    code = 1
    try:
        log = os.open(request.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.clear()
        os.environ.update(request.environment)
        sys.argv = [request.module, request.argument]
        code = __import__(request.module, fromlist=["main"]).main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def _living_as_long_as(driver: Process) -> Iterator[None]:
    """End this process when the driver is gone; a thread checks this, since the imports take seconds.

    The thread ends before the first fork, which it would not survive and might hold a lock at.
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.25):
            if driver.is_gone():
                os._exit(1)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def main() -> None:
    """Import, then fork workers until the run's driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    driver = Run(Path(sys.argv[2])).facts.driver
    assert driver is not None  # begin() starts no such process for a run without one
    with _living_as_long_as(driver):
        import transformers.modeling_utils  # noqa: F401

        import understudy.train.job  # noqa: F401

    serve(sys.argv[1], driver)
    os._exit(0)  # Python's shutdown takes over a second with these libraries


if __name__ == "__main__":
    main()
