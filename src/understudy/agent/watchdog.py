"""The node agent's watchdog: it requests this node's ranks to end on an eviction, and kills them when they hang."""

import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from understudy.agent.eviction import ABANDONED
from understudy.agent.exit_codes import EVICTED, HUNG, PEERS_LOST, STOPPED_AT_CHECKPOINT
from understudy.errors import UnderstudyError
from understudy.jobs import attempts
from understudy.jobs.heartbeat import heartbeats, seconds_since_heartbeat, seconds_since_launcher, volume_time
from understudy.jobs.specification import JobSpec

log = logging.getLogger(__name__)

CLOSED = "closed"  # file in the job's folder: the rendezvous was closed to a restarted node
RANKS_INTERVAL = 1.0  # seconds between two checks of the ranks
LAUNCHER_INTERVAL = 5.0  # seconds between two checks of the launcher, on the shared volume and from every node


class Watchdog(threading.Thread):
    """A thread that observes the ranks: it requests them to end on an eviction, and kills them when they hang."""

    def __init__(self, spec: JobSpec, eviction: Path) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._spec, self._eviction = spec, eviction
        self._folder = Path(spec.folder)
        # By the volume's clock. Heartbeats of an earlier attempt's ranks do not count: pods that still waited for each
        # other looked hung by them, and were killed four times in three minutes.
        self._began = volume_time(self._folder)
        self._unseen = False

    def evict(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle an eviction of the pod: its ranks take a checkpoint if they have done a step."""
        # Ranks look for the eviction file after a step. Those that still wait for each other would never see it, and
        # the pod would be killed at the end of its grace period without an outcome.
        if not self._has_stepped():
            _end(EVICTED)
        if not self._eviction.exists():
            self._eviction.write_text("evicted")

    def _has_stepped(self) -> bool:
        """Whether ranks have done a step since this pod started; waiting ranks do not check for an eviction."""
        ranks = attempts.ranks(self._spec)
        fresh = seconds_since_heartbeat(self._folder, ranks, self._began) is not None
        return fresh and any(beat.step >= 0 for beat in heartbeats(self._folder, ranks).values())

    def run(self) -> None:
        """Check the ranks until they are done."""
        waited = 0.0
        while True:
            time.sleep(RANKS_INTERVAL)
            waited += RANKS_INTERVAL
            try:
                if self._spec.is_over:
                    _end(STOPPED_AT_CHECKPOINT)  # another launcher has finished this job, or gc removed it
                self._check_rendezvous()
                self._check_for_hang()
                if waited >= LAUNCHER_INTERVAL:
                    waited = 0.0
                    self._check_launcher()
            except (OSError, UnderstudyError) as error:  # the volume is full or briefly unavailable
                log.warning("cannot check the ranks now: %s", error)

    def _check_launcher(self) -> None:
        unseen_before = self._unseen
        self._unseen = seconds_since_launcher(self._folder) > self._spec.launcher_timeout
        # Twice in a row: if the volume hangs during a check, the launcher's last sign looks as old as the check took.
        if not (self._unseen and unseen_before):
            return
        if not self._eviction.exists():
            log.warning("no launcher for %.0f s: the ranks take a checkpoint and end", self._spec.launcher_timeout)
            self._eviction.write_text(ABANDONED)
            with suppress(OSError):  # on a full volume they end without it
                self._spec.abandoned_file.touch()
        if self._eviction.read_text() == ABANDONED and not self._has_stepped():
            _end(STOPPED_AT_CHECKPOINT)

    def _check_rendezvous(self) -> None:
        """Restart ranks that wait for one that failed: its replacement cannot join their rendezvous."""
        # torch closes a rendezvous permanently when an agent fails in it. A rank elsewhere that is still in
        # init_process_group does not notice, and every successor was refused, every 8 s for 400 s
        # (docs/how-it-works/notes.md).
        closed = self._folder / CLOSED
        if not closed.exists() or closed.stat().st_mtime < self._began:
            return
        beats = heartbeats(self._folder, attempts.ranks(self._spec)).values()
        if not all(beat.step >= 0 for beat in beats):
            log.warning("a node that came back cannot join this rendezvous: restarting with it")
            _end(PEERS_LOST)

    def _check_for_hang(self) -> None:
        ranks = attempts.ranks(self._spec)
        quiet = seconds_since_heartbeat(self._folder, ranks, self._began)
        # A second more than the ranks' timers, so that these write stacks and collectives first.
        if quiet is None or quiet < self._spec.hang_timeout + RANKS_INTERVAL:
            return
        outcomes = attempts.outcomes(self._spec)
        if any(outcome.exit_code for outcome in outcomes):
            return  # the agents end the others
        if len(outcomes) == len(ranks):  # such as a library's thread that does not end: the work is done
            log.warning("every rank is done, but a process has not ended: ending it")
            _end(0)
        last = heartbeats(self._folder, ranks).values()
        positions = [f"rank {beat.rank} on {beat.node}: {beat.phase}, step {beat.step}" for beat in last]
        evidence = f"stacks and collectives are in {self._spec.rank_logs}"
        text = f"no rank has made progress for {quiet:.0f} s ({'; '.join(positions)}); {evidence}"
        try:
            attempts.report_hang(self._spec, text)
        finally:
            _end(HUNG)


def _end(code: int) -> None:
    """End the pod: its ranks die with this process.

    sys.exit() would end only the watchdog's thread, and in the signal handler it would be an exception in torchrun.
    """
    sys.stdout.flush()
    os._exit(code)
