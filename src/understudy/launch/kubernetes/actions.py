"""Carrying out what was decided: the only place of a launcher that changes anything in the cluster.

Before each change it asks whether the launcher still holds the step's lease: one that was frozen may have lost the job
to another. What fails halfway is decided and done again in the next round, so everything here may be done twice.
"""

from collections.abc import Callable

from understudy.errors import DONE, FAILED
from understudy.jobs import attempts
from understudy.jobs.outcome import Outcome
from understudy.kube.api import Kube, Refused
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
from understudy.launch.kubernetes.job import Job
from understudy.launch.kubernetes.status import JobStatus


class Actions:
    """What can be done about one job.

    Args:
        job: the job.
        kube: the cluster.
        watch: called before each change; an exception from it prevents it.
        say: called with what is done, and what is waited for.
    """

    def __init__(self, job: Job, kube: Kube, watch: Callable[[], None], say: Callable[[str], None]) -> None:
        self._job, self._kube, self._watch, self._say = job, kube, watch, say
        self._manifest = job.manifest()

    def carry_out(self, decision: Decision, status: JobStatus) -> Outcome | None:
        """Do what was decided; the job's outcome if that is the end of it."""
        for text in decision.messages:
            self._say(text)
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
        """Submit the job; the outcome when it is not accepted."""
        self._watch()  # removing the earlier attempt's outcomes needs the lease as much as submitting does
        # A stop request was for the ranks of an earlier job; the new ones would end at their first report.
        self._job.spec.stop_file.unlink(missing_ok=True)
        attempts.keep_failures(self._job.spec)
        try:
            self._kube.create_job(self._job.kind, self._manifest)
        except Refused as error:
            return Outcome(FAILED, f"the job {self._job.name} was not accepted: {error}")
        self._say(f"submitted as {self._job.name}")
        return None

    def _delete_pods(self, decision: DeletePods) -> None:
        for name in decision.dead:
            self._watch()
            # A grace of 0 removes it from the API although its node never confirms. Its processes may live on there:
            # that is why a new attempt renames the folder that ranks write to (jobs/attempts.py).
            self._kube.delete_pod(name, grace=0)
        for name in decision.others:
            self._watch()
            self._kube.delete_pod(name)

    def _resize(self, decision: Resize, status: JobStatus) -> None:
        assert status.found is not None
        self._watch()
        self._kube.change_job(self._job.kind, status.name, elastic.resize_patch(status.found, decision.nodes))
