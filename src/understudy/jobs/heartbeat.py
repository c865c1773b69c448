"""Signs of life: every rank says which step it has done, the launcher renews its lease; each watches the other."""

import faulthandler
import json
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from understudy.agent.flight_recorder import Collectives
from understudy.errors import disk_errors
from understudy.jobs.specification import JobSpec
from understudy.store.files import read_json

LEAVE = "UNDERSTUDY_LEAVE"
"""A file of this node: when it exists, its ranks have to take a checkpoint and leave; it holds the reason."""


ATTEMPT = "attempt"
"""Beside it: the attempt that the node's ranks are part of."""


@dataclass(frozen=True)
class Beat:
    """Where a rank stood when it was last heard of."""

    rank: int
    attempt: str
    phase: str
    step: int
    node: str
    at: float


class Pulse:
    """A rank's own signs of life. Without one for `spec.hang_timeout` seconds its stacks and collectives are written.

    The stacks by a thread of C, which runs though Python's may be stuck (faulthandler.dump_traceback_later).
    """

    def __init__(self, spec: JobSpec, rank: int) -> None:
        self._spec, self._rank = spec, rank
        self._stacks: IO[str] | None = None
        self._collectives: Collectives | None = None
        self._phase = ""

    def __call__(self, phase: str, step: int = -1) -> None:
        """Say how far the rank is."""
        if phase != self._phase:
            print(f"{time.time():.3f} {phase}", flush=True)  # where the time goes, in the rank's log
        self._phase = phase
        if not self._spec.supervised:
            return
        if self.attempt and not self._spec.work.is_dir():
            return  # another attempt goes on: this rank was only cut off, and its word does not count any more
        path = self._spec.beat(self._rank)
        beat = Beat(self._rank, self._spec.attempt, phase, step, node(), time.time())
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        with disk_errors(path):
            aside.write_text(json.dumps(beat.__dict__))
            os.replace(aside, path)
            self._stacks = self._stacks or self._spec.stacks(self._rank).open("a")  # after an earlier attempt's
        faulthandler.dump_traceback_later(self._spec.hang_timeout, file=self._stacks)
        if self._collectives is None:
            self._collectives = Collectives(self._spec.collectives(self._rank), self._spec.hang_timeout)
            self._collectives.start()
        self._collectives.moved()

    @property
    def attempt(self) -> str:
        """The attempt that the rank is part of; empty before it met the others."""
        return self._spec.attempt

    def entered(self, spec: JobSpec) -> None:
        """From now on the rank is part of this attempt."""
        self._spec = spec

    def stop(self) -> None:
        """Nothing more is to be expected."""
        faulthandler.cancel_dump_traceback_later()
        if self._stacks:
            self._stacks.close()
            self._stacks = None
        if self._collectives:
            self._collectives.stop()
            self._collectives = None


def node() -> str:
    """The node that this process runs on, or its pod, or its machine."""
    return os.environ.get("UNDERSTUDY_NODE") or socket.gethostname()


def tell_agent(attempt: str) -> None:
    """Leave word for this node's agent which attempt its ranks are part of."""
    if path := os.environ.get(LEAVE):
        Path(path).with_name(ATTEMPT).write_text(attempt)


def has_to_leave() -> bool:
    """Whether this node's ranks have to go."""
    path = os.environ.get(LEAVE)
    return path is not None and os.path.exists(path)


def beats(folder: Path, ranks: Iterable[int]) -> dict[int, Beat]:
    """The last sign of life of each rank that gave one."""
    found = ((rank, read_json(folder / f"beat-{rank}.json")) for rank in ranks)
    return {rank: Beat(**value) for rank, value in found if value}


def silence(folder: Path, ranks: Iterable[int], since: float) -> float | None:
    """Seconds since any rank was heard of, by the file system's clock; None before all of them were after `since`.

    What ranks of an earlier attempt have said does not count: new ones may wait long for each other.
    """
    times = []
    for rank in ranks:
        try:
            times.append((folder / f"beat-{rank}.json").stat().st_mtime)
        except FileNotFoundError:
            return None
    return now(folder) - max(times) if min(times) >= since else None


def launcher_silence(folder: Path) -> float:
    """Seconds since the launcher last renewed the lease on the step that this job's folder belongs to."""
    times = []
    for path in folder.parent.glob("[0-9]*/holder.*"):
        try:
            times.append(path.stat().st_mtime)
        except FileNotFoundError:
            continue
    return now(folder) - max(times, default=folder.stat().st_mtime)


def see_anew(folder: Path) -> None:
    """Have the file system ask again what is in a folder: NFS remembers for a minute which files were not there."""
    probe = folder / f".see-{socket.gethostname()}-{os.getpid()}"
    probe.touch()
    probe.unlink()


def now(folder: Path) -> float:
    """The file system's own clock, which all nodes share."""
    probe = folder / f".now-{socket.gethostname()}-{os.getpid()}"
    probe.touch()
    os.utime(probe)
    return probe.stat().st_mtime
