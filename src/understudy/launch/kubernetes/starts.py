"""Starts without progress: a job that is started again and again will not recover without help."""

from dataclasses import dataclass, replace

from understudy.kube.pods import was_disrupted
from understudy.launch.kubernetes.status import JobStatus


@dataclass(frozen=True)
class Starts:
    """The starts of a job since its last progress."""

    count: int = 0
    best: int = -1
    """The furthest step of any start."""
    pods: frozenset[str] = frozenset()
    """Pods (uids) of the last start: a start is counted when all pods are new."""
    job: str = ""
    """Job (uid) of the last start: a job that ended before its pods were seen was started too."""

    def after(self, status: JobStatus) -> "Starts":
        """The starts after observing a job status."""
        starts = self
        job = status.watched["metadata"]["uid"] if status.watched else self.job
        # A job that has run is queued again when it is preempted. A new job begins in its queue: that resets nothing,
        # or a job that is submitted again and again would never end.
        is_preempted = status.state.stage == "queued" and job == self.job
        if is_preempted or was_disrupted(status.pods):
            starts = replace(starts, count=0)  # the pods were evicted, for a reason outside of the job
        if status.step > starts.best:
            starts = replace(starts, best=status.step, count=0)
        pods = frozenset(pod["metadata"]["uid"] for pod in status.pods)
        # All of them: the operator also replaces a single pod, and ranks then continue from where they were.
        all_are_new = len(pods) >= status.job.spec.min_nodes and not pods & starts.pods
        if all_are_new:
            return replace(starts, count=starts.count + 1, pods=pods, job=job)
        # A job that fails within the 1.5 s between two rounds has ended before any pod of it was seen.
        if status.state.has_ended and job != starts.job:
            return replace(starts, count=starts.count + 1, job=job)
        return starts
