"""Heartbeats: ranks write their progress, the launcher renews its lease, and each observes the other."""

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from understudy.jobs.files import read, touch

BEFORE_TRAINING = ("importing", "joining the process group")
"""Phases, reported by agent/worker.py and train/job.py, in which a rank has not joined the process group."""


@dataclass(frozen=True)
class Heartbeat:
    """A rank's last heartbeat: its phase and step."""

    rank: int
    attempt: str
    phase: str
    step: int
    node: str
    at: float


_HEARTBEAT = TypeAdapter(Heartbeat)


def heartbeats(folder: Path, ranks: Iterable[int]) -> dict[int, Heartbeat]:
    """The last heartbeat of each rank that has one."""
    read_beats = ((rank, read(folder / f"heartbeat-{rank}.json", _HEARTBEAT)) for rank in ranks)
    return {rank: heartbeat for rank, heartbeat in read_beats if heartbeat}


def seconds_since_heartbeat(folder: Path, ranks: Iterable[int], since: float) -> float | None:
    """Seconds since the last heartbeat of any rank, by the file system's clock; None until all have one after `since`.

    Heartbeats of an earlier attempt do not count: new ranks may wait long for each other.
    """
    times = []
    for rank in ranks:
        try:
            times.append((folder / f"heartbeat-{rank}.json").stat().st_mtime)
        except FileNotFoundError:
            return None
    return volume_time(folder) - max(times) if min(times) >= since else None


def seconds_since_launcher(folder: Path) -> float:
    """Seconds since the launcher last renewed the lease on the job's step."""
    times = []
    for path in folder.parent.glob("[0-9]*/holder.*"):
        try:
            times.append(path.stat().st_mtime)
        except FileNotFoundError:
            continue
    return volume_time(folder) - max(times, default=folder.stat().st_mtime)


def refresh(folder: Path) -> None:
    """Refresh the file system's view of a folder: NFS caches for a minute that a file is missing."""
    probe = folder / f".see-{socket.gethostname()}-{os.getpid()}"
    touch(probe)
    probe.unlink()


def volume_time(folder: Path) -> float:
    """The file system's clock, which all nodes share."""
    probe = folder / f".now-{socket.gethostname()}-{os.getpid()}"
    return touch(probe)
