"""The controller: observes a job, diagnoses it and acts, in rounds, until there is a verdict.

Any launcher that holds the step's lease can take over from any other at any time, such as one whose pod was evicted:
a job's state is in the cluster and in the job's folder. History lists the exceptions.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from understudy.errors import Fenced, UnderstudyError
from understudy.jobs.heartbeat import heartbeats
from understudy.jobs.logs import RankLogs, RunLog
from understudy.jobs.outcome import Outcome
from understudy.kube.api import Kube
from understudy.kube.timeouts import Retries
from understudy.launch.kubernetes.actions import Actions
from understudy.launch.kubernetes.decisions import Decision, Finish
from understudy.launch.kubernetes.diagnosis import decide
from understudy.launch.kubernetes.evidence import explained
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.job import Job
from understudy.launch.kubernetes.observation import observe
from understudy.launch.kubernetes.status import JobStatus
from understudy.launch.metrics import Observation

TICK = 0.5  # seconds between two checks of the lease and the ranks' logs
ROUND = 1.5  # seconds between two rounds, each of which queries the API server


def run(
    job: Job,
    kube: Kube,
    watch: Callable[[], None],
    tell: Callable[[str], None],
    show: Callable[[Observation], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Run a job to its end.

    Args:
        job: the job; its specification is written first.
        kube: the cluster.
        watch: called several times a second, and before each change; an exception from it leaves the job to the next
            launcher.
        tell: called with the job's state, whenever that changes.
        show: called with the observation of the job, in each round.
        clock: seconds, from an arbitrary start.
        sleep: sleeps for some seconds.

    Returns:
        The job's outcome.
    """
    controller = Controller(job, kube, watch, tell, show, clock)
    while (outcome := controller.tick()) is None:
        sleep(TICK)
    return outcome


class Controller:
    """One launcher's loop over one job; arguments as of run()."""

    def __init__(
        self,
        job: Job,
        kube: Kube,
        watch: Callable[[], None],
        tell: Callable[[str], None],
        show: Callable[[Observation], None],
        clock: Callable[[], float],
    ) -> None:
        self._job, self._kube, self._watch, self._clock = job, kube, watch, clock
        self._tell, self._show = tell, show
        job.folder.mkdir(exist_ok=True)
        job.spec.rank_logs.mkdir(parents=True, exist_ok=True)  # a pod that mounts it would create it as root
        job.spec.write()
        self._run_log = RunLog(Path(job.spec.logs))
        self._logs = RankLogs(job.spec, self._run_log.write)
        self._actions = Actions(job, kube, watch, self._report)
        self._retries = Retries(clock, self._report)
        self._history = History()
        self._last_report = ""
        self._due = clock()

    def tick(self) -> Outcome | None:
        """Follow the ranks' logs, and reconcile if a round is due; returns the verdict if there is one."""
        try:
            return self._tick()
        except Fenced:
            raise  # another launcher has the job now
        except (UnderstudyError, OSError):  # this step has failed (a full volume, say): its job would be an orphan
            self._give_up()
            raise

    def _tick(self) -> Outcome | None:
        # Volume and API server are retried separately: the minute of the one must not be used up by the other.
        self._retries.call("files", self._check_files)
        if self._clock() < self._due:
            return None
        self._due = self._clock() + ROUND
        return self._retries.call("cluster", self._reconcile)

    def _give_up(self) -> None:
        """Delete the job if possible; a second error is suppressed, since the first is the one to report."""
        with suppress(UnderstudyError, OSError):
            self._actions.delete_job(self._history.name or self._job.name)

    def _check_files(self) -> None:
        self._watch()
        self._follow()

    def _reconcile(self) -> Outcome | None:
        """One round: observe, decide, act."""
        status = observe(self._job, self._kube, self._history, self._clock())
        self._history = self._history.after(status)
        self._show(status.observation(self._history.starts.count))
        decision = self._with_evidence(decide(status, self._history), status)
        # Before the action, which may raise: the API server deletes the job, its response is lost, and the next round
        # finds the job gone. Only the pending decision distinguishes that from a deletion by another client.
        self._history = self._history.with_pending(decision)
        outcome = self._actions.carry_out(decision, status)
        if outcome:
            self._follow(end=True)
        # Only now: an incomplete action is decided again from the same history.
        self._history = self._history.after_action(decision, status)
        return outcome

    def _with_evidence(self, decision: Decision, status: JobStatus) -> Decision:
        """Add the evidence to a verdict now: once the job is deleted, its pods are gone."""
        if isinstance(decision, Finish) and decision.explain:
            return replace(decision, outcome=explained(decision.outcome, status, self._logs), explain=False)
        return decision

    def _follow(self, *, end: bool = False) -> None:
        """Emit the ranks' new log lines."""
        beats = heartbeats(self._job.folder, range(self._job.spec.world_size))
        self._logs.follow({rank: beat.node for rank, beat in beats.items()}, end)

    def _report(self, text: str) -> None:
        """Log the job's state, unless it was the last line."""
        if text != self._last_report:
            self._last_report = text
            self._run_log.write(f"{self._job.identity.step}: {text}")
            self._tell(text)
