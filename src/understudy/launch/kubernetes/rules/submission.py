"""Rules for a launcher that watches no job yet: adopt one, delete others, or submit a new one."""

from understudy.kube.job_state import state_of
from understudy.kube.objects import KubernetesObject
from understudy.launch.kubernetes.decisions import Adopt, Decision, DeleteJobs, DeletePods, Submit, Wait
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.status import JobStatus


def deletion_unanswered(status: JobStatus, history: History) -> Decision | None:
    """Resume the pending decision if the job is gone: only the API server's response to its deletion was lost."""
    return history.pending if status.state.stage == "gone" else None


def launcher_replaced(status: JobStatus, _history: History) -> Decision | None:
    """Adopt the newest job that does this work, such as that of an evicted launcher; delete all others."""
    watchable = [job for job in status.candidates or () if _is_worth_watching(job, status)]
    if not watchable:
        return None
    # There can be two: that of a frozen launcher, and that of another run, which took over its lease meanwhile.
    name = _name(watchable[-1])
    return Adopt(name, tuple(_name(job) for job in status.candidates or () if _name(job) != name))


def job_left_over(status: JobStatus, _history: History) -> Decision | None:
    """Delete jobs that failed, or whose result was lost; no job is submitted until they are gone."""
    return DeleteJobs(tuple(_name(job) for job in status.candidates)) if status.candidates else None


def pods_left_over(status: JobStatus, history: History) -> Decision | None:
    """Wait until no pod of a deleted job is left, if the next job would share its name; force-delete dead pods."""
    if status.candidates is None or not status.pods:
        return None
    names = [_name(pod) for pod in status.pods]
    if dead := history.overdue(status.pods, status.at):
        return DeletePods(dead, (), f"{', '.join(dead)} of the previous job: its node does not answer; force-deleted")
    return Wait(f"waiting until {', '.join(names)} of the previous job has ended")


def no_job(status: JobStatus, _history: History) -> Decision | None:
    """Submit the job if none exists for its work."""
    return None if status.candidates is None else Submit()


def _is_worth_watching(job: KubernetesObject, status: JobStatus) -> bool:
    """Whether an existing job still does this work, or has done it and its result is complete."""
    stage = state_of(job, (), kind=status.job.kind).stage
    return stage not in ("gone", "failed") and (stage != "succeeded" or status.is_complete)


def _name(job: KubernetesObject) -> str:
    return str(job["metadata"]["name"])
