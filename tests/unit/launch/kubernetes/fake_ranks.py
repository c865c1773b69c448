"""Ranks of a fake cluster: they write heartbeats, outcomes, checkpoints and a result as real ones do, a step a second.

They also do the work of a pod's node agent (understudy.agent.node): outcomes of killed ranks, exit codes, hangs, and
leaving when no launcher is seen. A pod has one rank.
"""

import json
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from understudy.agent.exit_codes import EVICTED, HUNG, KILLED, PEERS_LOST, STOPPED_AT_CHECKPOINT
from understudy.errors import FAILED, STOPPED
from understudy.jobs import attempts
from understudy.jobs.heartbeat import Heartbeat
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec

CHECKPOINT = "checkpoint"
ENDS = count()  # their order is all that matters of their times
IMPORTS = 2.0  # seconds until the first step
JOIN_TIMEOUT = 600.0  # seconds that torch lets a node wait in a rendezvous for the others
Pod = dict[str, Any]


@dataclass
class Attempt:
    """Ranks that have met."""

    name: str
    ranks: dict[str, int]
    """By the uid of their pod."""
    step: int
    met: float
    moved: float
    """When the last step was done."""
    hangs: bool = False
    is_broken: bool = False
    """Whether a rank has failed: the others notice in the next second."""


@dataclass
class Ranks:
    """All ranks of the jobs that do one work, on one volume.

    Args:
        spec: the job.
        steps: after so many it is done.
        every: steps between two checkpoints.
    """

    spec: JobSpec
    steps: int = 20
    every: int = 5
    attempts: dict[str, Attempt] = field(default_factory=dict)
    """The newest of each job, by the job's uid."""
    seen_at: float = 0.0
    """When the launcher last renewed its lease."""
    breaks_at: int | None = None
    """The step from which on every attempt ends, for `breaks_by`."""
    breaks_by: Outcome | None = None
    best: int = 0
    """The furthest step of any attempt."""
    starts: int = 0
    """Attempts since the ranks last got further."""
    done: dict[str, set[int]] = field(default_factory=dict)
    """Ranks that came to the end of their training, by attempt."""
    waiting_since: dict[str, float] = field(default_factory=dict)
    """When pods entered the rendezvous, by their uid."""

    def tick(self, job: str, pods: list[Pod], size: int, now: float) -> None:
        """Let a second pass for the pods of a job that run, of so many that it waits for."""
        attempt = self.attempts.get(job)
        if attempt and (attempt.is_broken or not set(attempt.ranks) <= {uid(pod) for pod in pods}):
            self._lose_each_other(attempt, pods)
            attempt = None
            del self.attempts[job]
        pods = [pod for pod in pods if is_running(pod)]
        if now - self.seen_at > self.spec.launcher_timeout:
            self._leave_unwatched(attempt, pods)
        elif attempt is None or not set(attempt.ranks) & {uid(pod) for pod in pods}:
            self._meet(job, pods, size, now)
        elif not (self._folder / attempt.name).is_dir():
            end_all(pods, PEERS_LOST)  # another attempt goes on: these were only cut off
        elif any("deletionTimestamp" in pod["metadata"] for pod in pods) or self.spec.stop_file.exists():
            self._leave(attempt, pods)
        elif attempt.hangs:
            self._check_for_a_hang(attempt, pods, now)
        else:
            self._move(attempt, pods, now)

    @property
    def _folder(self) -> Path:
        return Path(self.spec.folder)

    def _meet(self, job: str, pods: list[Pod], size: int, now: float) -> None:
        """Begin an attempt at the last checkpoint, once all pods are there."""
        for pod in pods:
            if "deletionTimestamp" in pod["metadata"]:
                end(pod, EVICTED)
        running = [pod for pod in pods if is_running(pod)]
        if len(running) < size:
            self._give_up_waiting(running, now)
            return
        name = attempts.begin(self.spec, len(running))
        checkpoint = self._folder / name / CHECKPOINT
        step = int(checkpoint.read_text()) if checkpoint.exists() else 0
        self.starts += 1
        self.attempts[job] = Attempt(name, {uid(pod): number for number, pod in enumerate(running)}, step, now, now)

    def _give_up_waiting(self, pods: list[Pod], now: float) -> None:
        for pod in pods:
            if now - self.waiting_since.setdefault(uid(pod), now) > JOIN_TIMEOUT:
                end(pod, PEERS_LOST)

    def _move(self, attempt: Attempt, pods: list[Pod], now: float) -> None:
        if self.breaks_at is not None and attempt.step >= self.breaks_at and self.breaks_by:
            first = next(pod for pod in pods if uid(pod) in attempt.ranks)
            self.fail(attempt, first, self.breaks_by)
            return
        if now - attempt.met < IMPORTS:
            return
        if attempt.step < self.steps:
            attempt.step += 1
            if attempt.step > self.best:
                self.best, self.starts = attempt.step, 0
            attempt.moved = now
            if attempt.step % self.every == 0 or attempt.step == self.steps:
                self._keep(attempt)
            for pod in pods:
                self._beat(attempt, pod, now)
            return
        (self._folder / attempt.name / "output").mkdir(exist_ok=True)
        for pod in pods:
            if uid(pod) in attempt.ranks:
                self.finish(attempt, pod)

    def _beat(self, attempt: Attempt, pod: Pod, now: float) -> None:
        rank = attempt.ranks.get(uid(pod))
        if rank is None:
            return
        beat = Heartbeat(rank, attempt.name, "training", attempt.step, pod["spec"]["nodeName"], now)
        self.spec.heartbeat(rank).write_text(json.dumps(asdict(beat)))

    def _keep(self, attempt: Attempt) -> None:
        (self._folder / attempt.name / CHECKPOINT).write_text(str(attempt.step))

    def finish(self, attempt: Attempt, pod: Pod) -> None:
        """A rank is done."""
        self.done.setdefault(attempt.name, set()).add(attempt.ranks[uid(pod)])
        self._write_outcome(attempt, pod, Outcome(0))
        end(pod, 0)

    def fail(self, attempt: Attempt, pod: Pod, outcome: Outcome) -> None:
        """A rank fails; the others lose it in the next second, unless they are done."""
        self._write_outcome(attempt, pod, outcome)
        passing = {"killed": KILLED, "lost": PEERS_LOST}
        end(pod, passing.get(outcome.kind, outcome.exit_code))
        attempt.is_broken = True

    def _lose_each_other(self, attempt: Attempt, pods: list[Pod]) -> None:
        for pod in pods:
            if uid(pod) in attempt.ranks and is_running(pod):
                self._write_outcome(attempt, pod, Outcome(FAILED, "the connection to another rank was lost", "lost"))
                end(pod, PEERS_LOST)

    def _leave(self, attempt: Attempt, pods: list[Pod]) -> None:
        """All ranks take a checkpoint and leave, since one pod has to, or the run was stopped."""
        self._keep(attempt)
        code = STOPPED_AT_CHECKPOINT if self.spec.stop_file.exists() else EVICTED
        for pod in pods:
            self._write_outcome(attempt, pod, Outcome(STOPPED, f"stopped at step {attempt.step}, at a checkpoint"))
            end(pod, code)

    def _leave_unwatched(self, attempt: Attempt | None, pods: list[Pod]) -> None:
        if pods:
            self.spec.abandoned_file.touch()
        if attempt:
            self._keep(attempt)
        end_all(pods, STOPPED_AT_CHECKPOINT)

    def _check_for_a_hang(self, attempt: Attempt, pods: list[Pod], now: float) -> None:
        quiet = now - attempt.moved
        if quiet > self.spec.hang_timeout:
            phase = f"rank 0: training, step {attempt.step}"
            attempts.report_hang(self.spec, f"no rank has made progress for {quiet:.0f} s ({phase})")
            end_all(pods, HUNG)

    def _write_outcome(self, attempt: Attempt, pod: Pod, outcome: Outcome) -> None:
        rank = attempt.ranks.get(uid(pod))
        if rank is not None and (self._folder / attempt.name).is_dir():
            written = Outcome(outcome.exit_code, outcome.message, outcome.kind, attempt=attempt.name)
            written.write(self.spec.outcome(rank))


def uid(pod: Pod) -> str:
    """A pod's identity."""
    return str(pod["metadata"]["uid"])


def is_running(pod: Pod) -> bool:
    """Whether its container runs."""
    return bool(pod["status"]["phase"] == "Running")


def end_all(pods: list[Pod], code: int) -> None:
    """End pods."""
    for pod in pods:
        end(pod, code)


def end(pod: Pod, code: int, reason: str = "") -> None:
    """End a pod's container."""
    pod["status"]["phase"] = "Failed" if code else "Succeeded"
    ended = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "finishedAt": f"{next(ENDS):09}"}
    pod["status"]["containerStatuses"] = [{"image": "i:1", "state": {"terminated": ended}}]
