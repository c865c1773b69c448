"""The heartbeat of a rank, and a dump of its stacks and collectives when it hangs."""

import faulthandler
import json
import logging
import os
import socket
import time
from dataclasses import asdict
from typing import IO

from understudy.agent.flight_recorder import FlightRecorder
from understudy.errors import disk_errors
from understudy.jobs.heartbeat import Heartbeat
from understudy.jobs.specification import JobSpec

log = logging.getLogger(__name__)


class HeartbeatWriter:
    """Writer of a rank's heartbeats. After `spec.hang_timeout` seconds without one it dumps stacks and collectives.

    A C thread dumps the stacks, since Python's threads may be stuck (faulthandler.dump_traceback_later).
    """

    def __init__(self, spec: JobSpec, rank: int) -> None:
        self._spec, self._rank = spec, rank
        self._stacks: IO[str] | None = None
        self._collectives: FlightRecorder | None = None
        self._phase = ""

    def __call__(self, phase: str, step: int = -1) -> None:
        """Write the rank's phase and step."""
        if phase != self._phase:
            log.info("%s", phase)  # shows in the rank's log where the time goes
        self._phase = phase
        if not self._spec.supervised:
            return
        if self.attempt and not self._spec.work.is_dir():
            return  # another attempt is running: this rank was only cut off, and its heartbeat does not count
        self._write(Heartbeat(self._rank, self._spec.attempt, phase, step, node_name(), time.time()))
        self._stacks = self._stacks or self._open_stacks()
        faulthandler.dump_traceback_later(self._spec.hang_timeout, file=self._stacks)
        if self._collectives is None:
            self._collectives = FlightRecorder(self._spec.collectives(self._rank), self._spec.hang_timeout)
            self._collectives.start()
        self._collectives.restart_timer()

    def _open_stacks(self) -> IO[str]:
        """The file of the stacks, opened to append to those of an earlier attempt."""
        path = self._spec.stacks(self._rank)
        with disk_errors(path):
            return path.open("a")

    def _write(self, beat: Heartbeat) -> None:
        path = self._spec.heartbeat(self._rank)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with disk_errors(path):
            temporary.write_text(json.dumps(asdict(beat)))
            os.replace(temporary, path)

    @property
    def attempt(self) -> str:
        """The attempt that the rank is part of; empty before the rendezvous."""
        return self._spec.attempt

    def join(self, spec: JobSpec) -> None:
        """Make the rank part of this specification's attempt."""
        self._spec = spec

    def stop(self) -> None:
        """Stop the timers: there will be no more heartbeats."""
        faulthandler.cancel_dump_traceback_later()
        if self._stacks:
            self._stacks.close()
            self._stacks = None
        if self._collectives:
            self._collectives.stop()
            self._collectives = None


def node_name() -> str:
    """The name of this process's node, pod or machine."""
    return os.environ.get("UNDERSTUDY_NODE") or socket.gethostname()
