"""A launcher's memory from one round to the next: one frozen value, rebuilt from each job status.

A new launcher starts with an empty history. Its loss costs one repetition at most:

- `name` comes from the cluster, which is queried by the label of the job's key.
- The failures that count against `max_restarts` are on the volume (`failures.jsonl`), not in here.
- `since` and `terminating` are reset: every minute of recovery starts again, then the verdict is the same.
- `starts` and `abandoned` are reset: a job without progress is started ten times more. A launcher that fails is
  replaced five times at most (`backoffLimit`), an evicted one always: a job could restart forever only if launchers
  were evicted forever.
- `pending` is reset: a job that was to be restarted is either there, and is diagnosed again, or gone, and is submitted.
- `announced` is reset: rank failures of this run are logged once more.
- `ran_at` is reset: it is lost that a job ran without one of its pods. The job fails if that pod's volume has been
  missing for ten minutes and the others happen to be starting then.
- `scales` comes from events, which Kubernetes keeps for an hour; later a pending job is judged by the existing nodes.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from understudy.kube.objects import KubernetesObject
from understudy.kube.scheduling import knows_a_node
from understudy.kube.timeouts import RECOVERY, RESIZE, TERMINATION
from understudy.launch.kubernetes import elastic
from understudy.launch.kubernetes.decisions import Adopt, Announce, Decision, Finish, Resize, Restart, Submit
from understudy.launch.kubernetes.starts import Starts
from understudy.launch.kubernetes.status import JobStatus

NO_STATE = ("", False, False)


@dataclass(frozen=True)
class History:
    """The history of the rounds before this one."""

    name: str = ""
    """Name of the watched job; empty while there is none."""
    last_state: tuple[str, bool, bool] = NO_STATE
    """The job's stage, whether it is broken, whether its queue can never admit it."""
    since: float = 0.0
    """When it entered this state, by the launcher's clock: those of other machines may differ."""
    terminating: Mapping[str, float] = field(default_factory=dict)
    """When pods (uids) were first seen as terminating."""
    starts: Starts = field(default_factory=Starts)
    abandoned: frozenset[str] = frozenset()
    """Jobs (uids) whose ranks ended because they saw no launcher, though there was one."""
    pending: Restart | Finish | None = None
    """The decision not yet carried out: if the response to a deletion was lost, the job may be gone."""
    announced: int = 0
    """Number of failures of earlier attempts that were logged."""
    ran_at: float = -math.inf
    """When as many pods as the job needs last ran."""
    scales: bool = False
    """Whether a cluster autoscaler reported a suitable kind of node: it may provide one later."""

    def after(self, status: JobStatus) -> "History":
        """The history after observing a job status."""
        terminating = {uid: self.terminating.get(uid, status.at) for uid in _terminating(status.pods)}
        if status.candidates is not None:
            return replace(self, terminating=terminating)
        state = status.state
        # Without the detail: its text changes while the reason stays (the number of nodes, say), and each change would
        # restart the minute.
        condition = state.stage, bool(state.broken), state.is_never_admitted
        stays = self.last_state in (condition, (*condition[:2], True))  # an end of is_never_admitted restarts nothing
        return replace(
            self,
            last_state=condition,
            since=self.since if stays else status.at,
            terminating=terminating,
            starts=self.starts.after(status),
            abandoned=self.abandoned | _abandoned_jobs(status),
            ran_at=status.at if elastic.enough_running(status.job.spec, status.pods) else self.ran_at,
            scales=self.scales or (state.stage == "pending" and knows_a_node(status.events)),
        )

    def with_pending(self, decision: Decision) -> "History":
        """The history before carrying out a decision."""
        return replace(self, pending=decision if isinstance(decision, Restart | Finish) else None)

    def after_action(self, decision: Decision, status: JobStatus) -> "History":
        """The history after carrying out a decision."""
        match decision:
            case Submit():
                return replace(self, name=status.job.name, last_state=NO_STATE)
            case Adopt(name):
                return replace(self, name=name, last_state=NO_STATE)
            case Restart():
                return replace(self, name="", pending=None)
            case Resize(nodes):
                # A minute before the first reduction, ten seconds before each further one; at the minimum size the
                # whole minute counts again before the job is judged.
                ahead = RECOVERY - RESIZE if nodes > status.job.spec.min_nodes else 0.0
                return replace(self, since=status.at - ahead)
            case Announce():
                return replace(self, announced=len(status.failures))
        return self

    def seconds_in_state(self, status: JobStatus) -> float:
        """Seconds for which the job has been in its state."""
        return status.at - self.since

    def overdue(self, pods: Iterable[KubernetesObject], at: float) -> tuple[str, ...]:
        """Names of pods that have been terminating for longer than their grace period: their node is dead."""
        # By the launcher's clock, since it saw the deletion. The pod's deletionTimestamp is the API server's time: with
        # clocks that differed, a pod was force-deleted while it wrote its checkpoint.
        names = []
        for meta in (pod["metadata"] for pod in pods):
            allowed = meta.get("deletionGracePeriodSeconds", 0) + TERMINATION
            if at - self.terminating.get(meta["uid"], at) > allowed:
                names.append(str(meta["name"]))
        return tuple(names)


def _terminating(pods: Iterable[KubernetesObject]) -> list[str]:
    return [pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" in pod["metadata"]]


def _abandoned_jobs(status: JobStatus) -> frozenset[str]:
    """The job (uid), if its ranks ended because they saw no launcher."""
    if status.watched is None or not status.state.has_ended or not status.was_abandoned:
        return frozenset()
    return frozenset([status.watched["metadata"]["uid"]])
