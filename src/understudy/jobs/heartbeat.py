"""Heartbeats: every rank says which step it has done, the launcher renews its lease; each watches the other."""

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from understudy.store.files import read_json


@dataclass(frozen=True)
class Heartbeat:
    """Where a rank stood when it was last heard of."""

    rank: int
    attempt: str
    phase: str
    step: int
    node: str
    at: float


def heartbeats(folder: Path, ranks: Iterable[int]) -> dict[int, Heartbeat]:
    """The last heartbeat of each rank that has one."""
    found = ((rank, read_json(folder / f"heartbeat-{rank}.json")) for rank in ranks)
    return {rank: Heartbeat(**value) for rank, value in found if value}


def seconds_since_heartbeat(folder: Path, ranks: Iterable[int], since: float) -> float | None:
    """Seconds since any rank was heard of, by the file system's clock; None before all of them were after `since`.

    What ranks of an earlier attempt have said does not count: new ones may wait long for each other.
    """
    times = []
    for rank in ranks:
        try:
            times.append((folder / f"heartbeat-{rank}.json").stat().st_mtime)
        except FileNotFoundError:
            return None
    return volume_time(folder) - max(times) if min(times) >= since else None


def seconds_since_launcher(folder: Path) -> float:
    """Seconds since the launcher last renewed the lease on the step that this job's folder belongs to."""
    times = []
    for path in folder.parent.glob("[0-9]*/holder.*"):
        try:
            times.append(path.stat().st_mtime)
        except FileNotFoundError:
            continue
    return volume_time(folder) - max(times, default=folder.stat().st_mtime)


def refresh(folder: Path) -> None:
    """Have the file system ask again what is in a folder: NFS remembers for a minute which files were not there."""
    probe = folder / f".see-{socket.gethostname()}-{os.getpid()}"
    probe.touch()
    probe.unlink()


def volume_time(folder: Path) -> float:
    """The file system's own clock, which all nodes share."""
    probe = folder / f".now-{socket.gethostname()}-{os.getpid()}"
    probe.touch()
    os.utime(probe)
    return probe.stat().st_mtime
