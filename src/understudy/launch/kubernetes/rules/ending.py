"""Rules for a job that has ended: whether it went well. The operator's word is not enough for that.

A PyTorchJob counts as Succeeded as soon as one worker has ended well; a job went well when its result is complete and
every rank of its last attempt said so.
"""

from understudy.errors import DONE, FAILED, STOPPED
from understudy.jobs.outcome import Outcome
from understudy.launch.kubernetes.decisions import Decision, Finish, Restart, Wait
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.patience import SETTLE, STARTS
from understudy.launch.kubernetes.pods import death, was_disrupted
from understudy.launch.kubernetes.status import JobStatus


def result_complete(status: JobStatus, _history: History) -> Decision | None:
    """The job went well."""
    return Finish(Outcome(DONE)) if status.standing.has_ended and status.is_complete else None


def outcomes_missing(status: JobStatus, history: History) -> Decision | None:
    """A job that succeeded gets ten seconds until what its ranks said is seen on the volume."""
    # The operator's word may be here before what ranks of other nodes have written is seen on the volume.
    if status.standing.stage != "succeeded" or history.waited(status) >= SETTLE:
        return None
    return Wait("succeeded: waiting for its ranks to say how they ended")


def job_deleted(status: JobStatus, _history: History) -> Decision | None:
    """A job of this run that went was stopped with its run, or somebody else deleted it."""
    if status.standing.stage != "gone" or not status.is_ours:
        return None
    if status.owner_over:
        return Finish(Outcome(STOPPED, status.owner_over))
    return Finish(Outcome(FAILED, f"the job {status.name} was deleted by somebody else; run again to go on"))


def launcher_unseen(status: JobStatus, history: History) -> Decision | None:
    """Ranks that see no launcher leave at a checkpoint: the job is restarted, unless they do so again and again."""
    if not _ended_in_silence(status) or not status.was_abandoned:
        return None
    times = len(history.unwatched)
    if times < STARTS:
        return Restart(death(status.pods) or status.standing.detail)
    text = f"its ranks left {times} times since they saw no launcher for {status.job.spec.launcher_timeout:.0f} s"
    fix = "does the volume show them what the launcher writes? Or raise `launcher_timeout`"
    return Finish(Outcome(FAILED, f"{text}; {fix}"), explain=True)


def result_missing(status: JobStatus, _history: History) -> Decision | None:
    """A job that succeeded for its operator alone is restarted: its ranks ended before they could say how."""
    if status.standing.stage != "succeeded":
        return None
    return Restart("not every rank has said how it ended")


def pods_evicted(status: JobStatus, _history: History) -> Decision | None:
    """A job whose pods were evicted, or that went with the run that had submitted it, is restarted."""
    if not _ended_in_silence(status):
        return None
    # DisruptionTarget is the cluster's word that the pod was not to blame. A job that is gone and not of this run went
    # with the run that had submitted it.
    if status.standing.stage != "gone" and not was_disrupted(status.pods):
        return None
    return Restart(death(status.pods) or status.standing.detail)


def ended_without_word(status: JobStatus, _history: History) -> Decision | None:
    """A job that failed while no rank said why: what its pods printed is all that is known."""
    if not _ended_in_silence(status):
        return None
    return Finish(Outcome(FAILED, status.standing.detail, "silent"), explain=True)


def _ended_in_silence(status: JobStatus) -> bool:
    return status.standing.stage in ("failed", "gone") and not status.failed
