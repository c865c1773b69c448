"""Actions of the controller: all changes that it makes in the cluster.

Each change is preceded by a check of the step's lease: a launcher that was frozen may have lost the job to another. An
action that fails halfway is decided and done again in the next round, so every action is idempotent.
"""

from collections.abc import Callable

from understudy.errors import DONE, FAILED
from understudy.jobs import attempts
from understudy.jobs.outcome import Outcome
from understudy.kube.api import Kube, Refused
from understudy.kube.objects import KubernetesObject
from understudy.launch.kubernetes import elastic
from understudy.launch.kubernetes.decisions import (
    Adopt,
    Decision,
    DeleteJobs,
    DeletePods,
    Finish,
    Resize,
    Restart,
    Submit,
)
from understudy.launch.kubernetes.events import Event, Events, events_of, restarted
from understudy.launch.kubernetes.job import Job
from understudy.launch.kubernetes.rendering import network
from understudy.launch.kubernetes.status import JobStatus


class Actions:
    """Actions on one job.

    Args:
        job: the job.
        kube: the cluster.
        watch: called before each change; an exception from it prevents the change.
        say: called with a line about each action and each wait.
    """

    def __init__(self, job: Job, kube: Kube, watch: Callable[[], None], log: Callable[[str], None]) -> None:
        self._job, self._kube, self._watch, self._log = job, kube, watch, log
        self._manifest = job.manifest()
        self._events = Events(kube, job.kind)
        self._restarted: Event | None = None
        """Reported for the next job that is submitted: events of a deleted job go unread."""

    def carry_out(self, decision: Decision, status: JobStatus) -> Outcome | None:
        """Carry out a decision; returns the job's outcome if the decision ends it."""
        for text in decision.messages:
            self._log(text)
        outcome = self._carry_out(decision, status)
        self._report(decision, status)
        return outcome

    def _carry_out(self, decision: Decision, status: JobStatus) -> Outcome | None:
        match decision:
            case Submit():
                return self._submit()
            case Adopt(_, names) | DeleteJobs(names):
                for name in names:
                    self.delete_job(name)
            case Restart():
                self.delete_job(status.name)
            case DeletePods():
                self._delete_pods(decision)
            case Resize():
                self._resize(decision, status)
            case Finish(outcome):
                if outcome.exit_code != DONE:  # a successful job is kept for a day, for inspection
                    self.delete_job(status.name)
                return outcome
        return None

    def delete_job(self, name: str) -> None:
        """Delete a job and its pods."""
        self._watch()
        self._kube.delete_job(self._job.kind, name)

    def _submit(self) -> Outcome | None:
        """Submit the job; returns an outcome if it is not accepted."""
        self._watch()  # removing the earlier attempt's outcomes needs the lease too
        # A stop request was for the ranks of an earlier job; new ranks would end at their first report.
        self._job.spec.stop_file.unlink(missing_ok=True)
        attempts.keep_failures(self._job.spec)
        try:
            self._let_ranks_meet()
            created = self._kube.create_job(self._job.kind, self._manifest)
        except Refused as error:
            return Outcome(FAILED, f"the job {self._job.name} was not accepted: {error}")
        self._log(f"submitted as {self._job.name}")
        if created:
            submitted = Event(
                "Submitted", f"by {self._job.identity.step} of the run {self._job.identity.run}", "Normal"
            )
            self._events.write_for_job(created, self._restarted or submitted)
            self._restarted = None
        return None

    def _report(self, decision: Decision, status: JobStatus) -> None:
        """Write events of a decision for the job and, unless it succeeded, for its owner, which remains."""
        jobs = (
            [status.watched] if status.watched else [job for job in status.candidates or () if _is_for(decision, job)]
        )
        for event in events_of(decision, status):
            for job in jobs:
                self._events.write_for_job(job, event)
            if self._job.owner and isinstance(decision, Finish) and decision.outcome.exit_code != DONE:
                self._events.write({**self._job.owner}, event)
        if isinstance(decision, Restart):
            self._restarted = restarted(decision, status)

    def _let_ranks_meet(self) -> None:
        """Create the NetworkPolicy that lets the job's nodes communicate, before their pods exist."""
        if self._job.spec.nodes > 1 and self._kube.has_policy(network.RANKS):
            self._kube.create_policy(network.render(self._job.identity, self._job.owner))

    def _delete_pods(self, decision: DeletePods) -> None:
        for name in decision.dead:
            self._watch()
            # A grace period of 0 removes it from the API although its node never confirms. Its processes may live on:
            # therefore a new attempt renames the folder that ranks write to (jobs/attempts.py).
            self._kube.delete_pod(name, grace=0)
        for name in decision.responsive:
            self._watch()
            self._kube.delete_pod(name)

    def _resize(self, decision: Resize, status: JobStatus) -> None:
        assert status.watched is not None
        self._watch()
        self._kube.change_job(self._job.kind, status.name, elastic.resize_patch(status.watched, decision.nodes))


def _is_for(decision: Decision, job: KubernetesObject) -> bool:
    return isinstance(decision, Adopt) and job["metadata"]["name"] == decision.name
