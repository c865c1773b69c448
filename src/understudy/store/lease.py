"""Leases without locks: the process that renames the step's work folder to its own name holds it.

A step's work is in `work/KEY/EPOCH.HOLDER/`. A process takes it over by renaming that folder to the next epoch and
its name: rename is atomic on local and NFS-like file systems, so one contender wins. Everything that a holder writes
later (a checkpoint, the result, its entry in the step cache) is renamed out of, or into, a path below that folder. So
the path is the fencing token: a holder that was frozen and resumes no longer finds it.
"""

import json
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import Fenced, disk_errors
from understudy.store.files import read_json

FREE = "free"


@dataclass(frozen=True)
class Process:
    """A process on one boot of one machine, so that a reused PID is not mistaken for it."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    @staticmethod
    def current() -> "Process":
        """The calling process."""
        return Process.of(os.getpid())

    @staticmethod
    def of(pid: int) -> "Process":
        """A process of this machine."""
        return Process(*_machine(), pid, _started(pid) or "")

    def is_gone(self) -> bool:
        """Whether it has certainly ended. Also False for a process of another machine, boot or PID namespace."""
        if (self.host, self.boot, self.namespace) != _machine():
            return False
        return _started(self.pid) != self.started


def _machine() -> tuple[str, str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return (
        socket.gethostname(),
        boot.read_text().strip() if boot.exists() else "",
        os.readlink("/proc/self/ns/pid") if os.path.exists("/proc/self/ns/pid") else "",
    )


def _started(pid: int) -> str | None:
    """The start time of a living process in clock ticks since boot; None for none or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Lease:
    """The right to do one step's work, and the folder to do it in."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self._seconds = seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease {folder.parent.name[:8]}", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        """A number that rises with each holder."""
        return int(self.folder.name.split(".")[0])

    def check(self) -> None:
        """Raise Fenced when another holder has taken over.

        Raises:
            Fenced: the lease was lost.
        """
        if not self.folder.is_dir():
            raise Fenced(f"{self.folder.parent.name}: another run has taken this step over")

    def _renew(self) -> None:
        beat = self.folder / _holder_file(self.folder.name)
        # Six times within the lease: a brief outage of the volume costs some of them, and not the lease.
        while not self._done.wait(self._seconds / 6):
            try:
                os.utime(beat)
            except FileNotFoundError:
                return  # another holder has taken over
            except OSError:  # a brief outage of the volume; if it lasts, another holder takes over
                continue

    def staging(self) -> Path:
        """A new empty folder below the lease, to publish from."""
        self.check()
        path = self.folder / f"staging-{secrets.token_hex(4)}"
        with disk_errors(path):
            path.mkdir()
        return path

    def release(self) -> None:
        """Release the work folder with its content, for the next holder."""
        self._done.set()
        self._thread.join()
        try:
            os.rename(self.folder, self.folder.with_name(f"{self.epoch}.{FREE}"))
        except FileNotFoundError as error:
            raise Fenced(f"{self.folder.parent.name}: another run has taken this step over") from error

    def release_if_held(self) -> None:
        """Release the work folder, unless another holder has taken it."""
        if self.folder.is_dir():
            self.release()

    def finish(self) -> None:
        """End the work: remove its folder."""
        self._done.set()
        self._thread.join()
        # Renamed first: another process must not take over a half-removed tree.
        removed = self.folder.parent.with_name(f".{self.folder.parent.name}.{secrets.token_hex(4)}")
        if self.folder.is_dir():
            os.rename(self.folder.parent, removed)
            shutil.rmtree(removed, ignore_errors=True)


def _holder_file(name: str) -> str:
    return f"holder.{name.split('.')[1]}"


def acquire(work: Path, key: str, seconds: float) -> Lease | None:
    """Take the lease on a key if it is free or new, or its holder ended or stopped renewing it.

    Args:
        work: the store's folder of work in progress.
        key: the step's key.
        seconds: how long a holder may go without renewing.

    Returns:
        The lease, or None while another holder has it.
    """
    root = work / key
    name = secrets.token_hex(8)
    with disk_errors(root):
        current = _current(root)
        if current is None:
            return _first(root, name, seconds)
        if not _can_be_taken_over(current, seconds):
            return None
        # The new holder's file is written before the rename and under the new name, so that a folder never has a name
        # without the file that records its holder and the last renewal.
        epoch = int(current.name.split(".")[0]) + 1
        target = root / f"{epoch}.{name}"
        try:
            _write_holder(current, target.name)
            os.rename(current, target)
            _sweep(target)
        except FileNotFoundError:  # another contender's rename came first
            return None
    return Lease(target, seconds)


def holder(work: Path, key: str) -> Process | None:
    """The holder of a key; None when there is none, or the lease is just being taken."""
    current = _current(work / key)
    return None if current is None or current.name.endswith(FREE) else _holder(current)


def is_held(work: Path, key: str, seconds: float) -> bool:
    """Whether a living holder has the key."""
    current = _current(work / key)
    return current is not None and not _can_be_taken_over(current, seconds)


def wait_for(work: Path, key: str, seconds: float, give_up: Callable[[], bool]) -> Lease | None:
    """Wait for the lease; None as soon as give_up() returns true."""
    while not give_up():
        if lease := acquire(work, key, seconds):
            return lease
        time.sleep(0.2)
    return None


def _current(root: Path) -> Path | None:
    try:
        folders = [path for path in root.iterdir() if path.name.split(".")[0].isdigit()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    return max(folders, key=lambda path: int(path.name.split(".")[0]), default=None)


def _first(root: Path, name: str, seconds: float) -> Lease | None:
    # Created aside and renamed as a whole: rename does not replace a folder with content, so of two first holders one
    # gets an error.
    temporary = root.with_name(f".{root.name}.{name}")
    folder = temporary / f"1.{name}"
    folder.mkdir(parents=True)
    _write_holder(folder, folder.name)
    try:
        os.rename(temporary, root)
    except OSError:
        shutil.rmtree(temporary)
        return None
    return Lease(root / folder.name, seconds)


def _write_holder(folder: Path, name: str) -> None:
    (folder / _holder_file(name)).write_text(json.dumps(Process.current().__dict__))


def _can_be_taken_over(folder: Path, seconds: float) -> bool:
    if folder.name.endswith(FREE):
        return True
    # A dead process of this machine and boot is detected immediately. One elsewhere is detected only by its missing
    # heartbeats, which takes the whole lease.
    process = _holder(folder)
    beat = folder / _holder_file(folder.name) if process else folder  # a power loss may have lost the file
    try:
        return (process is not None and process.is_gone()) or _now(folder) - beat.stat().st_mtime > seconds
    except FileNotFoundError:  # another holder is taking over
        return False


def _holder(folder: Path) -> Process | None:
    value = read_json(folder / _holder_file(folder.name))
    try:
        return Process(**value) if value else None
    except TypeError:
        return None


def _now(folder: Path) -> float:
    """The file system's clock: a heartbeat is compared with it, never with this machine's."""
    probe = folder.parent / f".now.{secrets.token_hex(8)}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink()


def _sweep(folder: Path) -> None:
    """Remove the leftovers of earlier holders: their holder files, and unpublished results."""
    for path in folder.iterdir():
        if path.name.startswith("holder.") and path.name != _holder_file(folder.name):
            path.unlink(missing_ok=True)
        elif path.name.startswith("staging-"):
            shutil.rmtree(path, ignore_errors=True)
