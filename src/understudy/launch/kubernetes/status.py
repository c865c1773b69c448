"""The job status: the state of a job at one time, from the API server and the volume, as one frozen value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from understudy.jobs.heartbeat import BEFORE_TRAINING, Heartbeat
from understudy.jobs.outcome import Outcome
from understudy.kube.job_state import JobState
from understudy.kube.objects import KubernetesObject
from understudy.kube.pods import phase
from understudy.launch.kubernetes.job import Job
from understudy.launch.metrics import RENDEZVOUS, Seen


@dataclass(frozen=True)
class JobStatus:
    """A job as it was at one time. What depends on a stage is empty in the others."""

    job: Job
    at: float
    """When that was, by the launcher's clock."""
    candidates: tuple[KubernetesObject, ...] | None = None
    """All jobs that do the same work, while the launcher watches none yet; None as soon as it does."""
    name: str = ""
    """Of the job that is watched."""
    found: KubernetesObject | None = None
    """The job that is watched; None when it is not there any more."""
    pods: tuple[KubernetesObject, ...] = ()
    """Its pods; of an elastic job those that suffice, when others find no node."""
    state: JobState = field(default_factory=lambda: JobState("gone"))
    """Read from the objects in the cluster."""

    heartbeats: Mapping[int, Heartbeat] = field(default_factory=dict)
    """By rank."""
    outcomes: tuple[Outcome, ...] = ()
    """How ranks of the newest attempt have ended that have."""
    attempt: int = 0
    """How often its ranks have begun together, in earlier runs too."""
    failures: tuple[Outcome, ...] = ()
    """How earlier attempts of this run failed, the oldest first."""
    is_complete: bool = False
    """Whether every rank of the newest attempt is done, and its result there."""
    has_to_stop: bool = False
    """Whether the ranks were asked to take a checkpoint and end."""
    was_abandoned: bool = False
    """Whether ranks ended because they saw no launcher."""

    owner_ended: str = ""
    """Why the job's owner no longer needs it. Asked when the job is gone."""
    events: tuple[KubernetesObject, ...] = ()
    """What was reported of the pods that wait, or of the job when it has no pods. Asked when that lasts."""
    nodes: tuple[KubernetesObject, ...] | None = None
    """Nodes that its first pod may go to. Asked when it finds none for long; None when they cannot be listed."""
    pod_log: tuple[str, ...] = ()
    """The last lines of the first pod that died, with a heading. Asked when the job failed without an outcome."""

    @property
    def step(self) -> int:
        """How far the ranks are; -1 before the first step."""
        return max((beat.step for beat in self.heartbeats.values()), default=-1)

    @property
    def stage(self) -> str:
        """Where the job is: as in its state, or at the rendezvous."""
        meeting = not self.heartbeats or any(beat.phase in BEFORE_TRAINING for beat in self.heartbeats.values())
        return RENDEZVOUS if self.state.stage == "running" and meeting else self.state.stage

    def seen(self, starts: int) -> Seen:
        """What of it is shown in the metrics; `starts` are those since the last progress."""
        return Seen(
            kind=self.job.kind.name,
            name=self.name,
            stage=self.stage,
            attempt=self.attempt,
            failures=tuple(outcome.kind for outcome in self.failures),
            starts=starts,
            running_pods=sum(phase(pod) == "Running" for pod in self.pods),
            heartbeats=self.heartbeats,
        )

    @property
    def is_ours(self) -> bool:
        """Whether this run submitted the job: a job of another run is deleted with that run."""
        return self.name == self.job.name

    @property
    def failed(self) -> list[Outcome]:
        """The outcomes that are no success."""
        return [outcome for outcome in self.outcomes if outcome.exit_code]

    @property
    def cause(self) -> Outcome | None:
        """What ended the newest attempt; None while it runs, and when no rank reported it.

        An attempt in which some ranks are done and another one failed has ended: the failed one is restarted, and
        waits for the others in vain.
        """
        if self.is_complete or not self.failed:
            return None
        if self.state.has_ended or len(self.failed) < len(self.outcomes):
            return Outcome.cause(self.failed)
        return None
