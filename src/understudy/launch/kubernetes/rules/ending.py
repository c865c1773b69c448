"""Rules for a job that has ended. The operator's status does not show whether it succeeded.

A PyTorchJob is Succeeded as soon as one worker is; a job succeeded when its result is complete and every rank of its
last attempt reported success.
"""

from understudy.errors import DONE, FAILED, STOPPED
from understudy.jobs.outcome import Outcome
from understudy.kube.pods import death, was_disrupted
from understudy.kube.timeouts import SETTLE, STARTS
from understudy.launch.kubernetes.decisions import Decision, Finish, Restart, Wait
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.status import JobStatus


def result_complete(status: JobStatus, _history: History) -> Decision | None:
    """Finish a job that succeeded."""
    return Finish(Outcome(DONE)) if status.state.has_ended and status.is_complete else None


def outcomes_missing(status: JobStatus, history: History) -> Decision | None:
    """Wait up to ten seconds for the outcomes of a job that succeeded."""
    # The operator's status may arrive before the outcomes of ranks on other nodes are visible on the volume.
    if status.state.stage != "succeeded" or history.seconds_in_state(status) >= SETTLE:
        return None
    return Wait("succeeded: waiting for the outcomes of its ranks")


def job_deleted(status: JobStatus, _history: History) -> Decision | None:
    """Finish a job of this run that was deleted with its run, or by another client."""
    if status.state.stage != "gone" or not status.is_ours:
        return None
    if status.owner_ended:
        return Finish(Outcome(STOPPED, status.owner_ended))
    return Finish(Outcome(FAILED, f"the job {status.name} was deleted by another client; run again to resume"))


def launcher_unseen(status: JobStatus, history: History) -> Decision | None:
    """Restart a job whose ranks saw no launcher, and so ended at a checkpoint; fail if it repeats too often."""
    if not _has_no_outcome(status) or not status.was_abandoned:
        return None
    times = len(history.abandoned)
    if times < STARTS:
        return Restart(death(status.pods) or status.state.detail)
    text = f"its ranks ended {times} times because they saw no launcher for {status.job.spec.launcher_timeout:.0f} s"
    fix = "check that the volume shows them the launcher's writes, or raise `launcher_timeout`"
    return Finish(Outcome(FAILED, f"{text}; {fix}"), explain=True)


def result_missing(status: JobStatus, _history: History) -> Decision | None:
    """Restart a job that succeeded only for its operator: ranks ended before they reported an outcome."""
    if status.state.stage != "succeeded":
        return None
    return Restart("not every rank reported an outcome")


def pods_evicted(status: JobStatus, _history: History) -> Decision | None:
    """Restart a job whose pods were evicted, or that was deleted with the run that had submitted it."""
    if not _has_no_outcome(status):
        return None
    # By DisruptionTarget the cluster reports that the pod was not the cause. A gone job of another run was deleted
    # with that run.
    if status.state.stage != "gone" and not was_disrupted(status.pods):
        return None
    return Restart(death(status.pods) or status.state.detail)


def ended_without_outcome(status: JobStatus, _history: History) -> Decision | None:
    """Fail a job without an outcome of any rank; the logs of its pods are the only evidence."""
    if not _has_no_outcome(status):
        return None
    return Finish(Outcome(FAILED, status.state.detail, "unreported"), explain=True)


def _has_no_outcome(status: JobStatus) -> bool:
    return status.state.stage in ("failed", "gone") and not status.failed
