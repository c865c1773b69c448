"""What a launcher remembers from one round to the next: one frozen value, made anew from each job status.

A successor begins with an empty one. What it needs comes back by itself, and what does not costs a repetition at most:

- `name` comes from the cluster: the job is found by the label of its key.
- The failures that count against `max_restarts` lie on the volume (`failures.jsonl`) and are no part of this.
- `since` and `terminating` begin anew: whatever is to mend has its minute once more, then the verdict is the same.
- `starts` and `unwatched` begin anew: a job that gets no further is started ten times more. A run's launcher is
  replaced five times at most (`backoffLimit`), so that this ends too.
- `pending` begins anew: a job that was to be restarted is found as it is, or gone, and judged or submitted again.
- `told` begins anew: the log says once more how ranks of this run failed.
- `ran_at` begins anew: that a job ran without one of its pods is forgotten. It fails if that pod's volume has been
  missing for ten minutes and the others happen to be starting then.
- `scales` comes from events, which Kubernetes keeps for an hour; later a pending job is judged by the nodes there are.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from understudy.launch.kubernetes import elastic
from understudy.launch.kubernetes.decisions import Adopt, Decision, Finish, Resize, Restart, Submit, Tell
from understudy.launch.kubernetes.objects import KubernetesObject
from understudy.launch.kubernetes.patience import RECOVERY, RESIZE, TERMINATION
from understudy.launch.kubernetes.scheduling import knows_a_node
from understudy.launch.kubernetes.starts import Starts
from understudy.launch.kubernetes.status import JobStatus

NOWHERE = ("", False, False)


@dataclass(frozen=True)
class History:
    """What the rounds before this one have shown."""

    name: str = ""
    """Of the job that is watched; empty while there is none."""
    where: tuple[str, bool, bool] = NOWHERE
    """Where the job stands: its stage, whether it is broken, whether its queue can never admit it."""
    since: float = 0.0
    """Since when it stands there, by the launcher's clock: other machines' may differ."""
    terminating: Mapping[str, float] = field(default_factory=dict)
    """Since when pods (uids) have been seen as deleted and still there."""
    starts: Starts = field(default_factory=Starts)
    unwatched: frozenset[str] = frozenset()
    """Jobs (uids) whose ranks left since they saw no launcher, though there was one."""
    pending: Restart | Finish | None = None
    """What was decided and not yet carried out: the answer to a deletion may be lost, and then the job is gone."""
    told: int = 0
    """How many failures of earlier attempts were told."""
    ran_at: float = -math.inf
    """When as many pods ran as the job needs."""
    scales: bool = False
    """Whether a cluster autoscaler has had a node for the job: it may have one again."""

    def after(self, status: JobStatus) -> "History":
        """What is known when a job status has been seen."""
        terminating = {uid: self.terminating.get(uid, status.at) for uid in _terminating(status.pods)}
        if status.rivals is not None:
            return replace(self, terminating=terminating)
        standing = status.standing
        # Not the detail: its words change while the reason stays (how many nodes lack what), and each time the minute
        # would begin anew.
        where = standing.stage, bool(standing.broken), standing.is_never_admitted
        stays = self.where in (where, (*where[:2], True))  # what is only no longer hopeless has waited as long
        return replace(
            self,
            where=where,
            since=self.since if stays else status.at,
            terminating=terminating,
            starts=self.starts.after(status),
            unwatched=self.unwatched | _unwatched(status),
            ran_at=status.at if elastic.goes_on(status.job.spec, status.pods) else self.ran_at,
            scales=self.scales or (standing.stage == "pending" and knows_a_node(status.events)),
        )

    def intending(self, decision: Decision) -> "History":
        """What is known when a decision is about to be carried out."""
        return replace(self, pending=decision if isinstance(decision, Restart | Finish) else None)

    def then(self, decision: Decision, status: JobStatus) -> "History":
        """What is known when a decision has been carried out."""
        match decision:
            case Submit():
                return replace(self, name=status.job.name, where=NOWHERE)
            case Adopt(name):
                return replace(self, name=name, where=NOWHERE)
            case Restart():
                return replace(self, name="", pending=None)
            case Resize(nodes):
                # A minute for the first node less, ten seconds for each further one; once the job is as small as it may
                # be, the whole minute counts again before it is judged.
                ahead = RECOVERY - RESIZE if nodes > status.job.spec.least else 0.0
                return replace(self, since=status.at - ahead)
            case Tell():
                return replace(self, told=len(status.failures))
        return self

    def waited(self, status: JobStatus) -> float:
        """Seconds for which the job has stood where it does."""
        return status.at - self.since

    def overdue(self, pods: Iterable[KubernetesObject], at: float) -> tuple[str, ...]:
        """The names of pods that were seen as deleted for longer than their grace period: their node is dead."""
        # By the launcher's own clock, since it saw the deletion. The pod's deletionTimestamp is the API server's time,
        # and where clocks differed a pod was given up that still wrote its checkpoint.
        names = []
        for meta in (pod["metadata"] for pod in pods):
            allowed = meta.get("deletionGracePeriodSeconds", 0) + TERMINATION
            if at - self.terminating.get(meta["uid"], at) > allowed:
                names.append(str(meta["name"]))
        return tuple(names)


def _terminating(pods: Iterable[KubernetesObject]) -> list[str]:
    return [pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" in pod["metadata"]]


def _unwatched(status: JobStatus) -> frozenset[str]:
    """The job, where its ranks have left since they saw no launcher."""
    if status.found is None or not status.standing.has_ended or not status.was_abandoned:
        return frozenset()
    return frozenset([status.found["metadata"]["uid"]])
