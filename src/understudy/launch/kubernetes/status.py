"""The job status: all that the API and the volume say about a job at one time, as one frozen value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from understudy.jobs.heartbeat import Heartbeat
from understudy.jobs.outcome import Outcome
from understudy.launch.kubernetes.job import Job
from understudy.launch.kubernetes.objects import KubernetesObject
from understudy.launch.kubernetes.standing import Standing


@dataclass(frozen=True)
class JobStatus:
    """A job as it was at one time. What depends on a stage is empty in the others."""

    job: Job
    at: float
    """When that was, by the launcher's clock."""
    rivals: tuple[KubernetesObject, ...] | None = None
    """All jobs that do the same work, while the launcher watches none yet; None as soon as it does."""
    name: str = ""
    """Of the job that is watched."""
    found: KubernetesObject | None = None
    """The job that is watched; None when it is not there any more."""
    pods: tuple[KubernetesObject, ...] = ()
    """Its pods; of an elastic job those that suffice, when others find no node."""
    standing: Standing = field(default_factory=lambda: Standing("gone"))
    """What the objects in the cluster say, read together."""

    heartbeats: Mapping[int, Heartbeat] = field(default_factory=dict)
    """By rank."""
    outcomes: tuple[Outcome, ...] = ()
    """How ranks of the newest attempt have ended that have."""
    failures: tuple[Outcome, ...] = ()
    """How earlier attempts of this run failed, the oldest first."""
    is_complete: bool = False
    """Whether every rank of the newest attempt is done, and its result there."""
    has_to_stop: bool = False
    """Whether the ranks were asked to take a checkpoint and leave."""
    was_abandoned: bool = False
    """Whether ranks left since they saw no launcher."""

    owner_over: str = ""
    """Why what the job belongs to needs it no longer. Asked when the job is gone."""
    events: tuple[KubernetesObject, ...] = ()
    """What was reported of the pods that wait, or of the job when it has no pods. Asked when that lasts."""
    nodes: tuple[KubernetesObject, ...] | None = None
    """Nodes that its first pod may go to. Asked when it finds none for long; None when they cannot be listed."""
    pod_log: tuple[str, ...] = ()
    """The last lines of the first pod that died, with a heading. Asked when the job failed and no rank said why."""

    @property
    def step(self) -> int:
        """How far the ranks are; -1 before the first step."""
        return max((beat.step for beat in self.heartbeats.values()), default=-1)

    @property
    def is_ours(self) -> bool:
        """Whether this run submitted the job: what another run had submitted goes with that run."""
        return self.name == self.job.name

    @property
    def failed(self) -> list[Outcome]:
        """The outcomes that are no success."""
        return [outcome for outcome in self.outcomes if outcome.exit_code]

    @property
    def cause(self) -> Outcome | None:
        """What ended the newest attempt; None while it goes on, and when nobody said.

        An attempt in which some ranks are done and another one failed has ended: the failed one comes back, waits for
        the others, and finds nobody to meet.
        """
        if self.is_complete or not self.failed:
            return None
        if self.standing.has_ended or len(self.failed) < len(self.outcomes):
            return Outcome.cause(self.failed)
        return None
