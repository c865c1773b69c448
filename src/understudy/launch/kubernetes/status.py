"""The job status: the state of a job at one time, from the API server and the volume, as one frozen value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from understudy.jobs.heartbeat import BEFORE_TRAINING, Heartbeat
from understudy.jobs.outcome import Outcome
from understudy.kube.job_state import JobState
from understudy.kube.objects import KubernetesObject
from understudy.kube.pods import phase
from understudy.launch.kubernetes.job import Job
from understudy.launch.metrics import RENDEZVOUS, Observation


@dataclass(frozen=True)
class JobStatus:
    """The status of a job at one time. Fields that depend on a stage are empty in the others."""

    job: Job
    at: float
    """Time of the observation, by the launcher's clock."""
    candidates: tuple[KubernetesObject, ...] | None = None
    """All jobs that do the same work, while the launcher watches none yet; None as soon as it does."""
    name: str = ""
    """Name of the watched job."""
    watched: KubernetesObject | None = None
    """The watched job; None if it no longer exists."""
    pods: tuple[KubernetesObject, ...] = ()
    """Its pods; of an elastic job the scheduled ones, if they suffice."""
    state: JobState = field(default_factory=lambda: JobState("gone"))
    """Read from the objects in the cluster."""

    heartbeats: Mapping[int, Heartbeat] = field(default_factory=dict)
    """Heartbeats by rank."""
    outcomes: tuple[Outcome, ...] = ()
    """Outcomes of the newest attempt's ranks that have ended."""
    attempt: int = 0
    """Number of the newest attempt, counted across runs."""
    failures: tuple[Outcome, ...] = ()
    """Failures of earlier attempts of this run, the oldest first."""
    is_complete: bool = False
    """Whether every rank of the newest attempt succeeded, and its result exists."""
    has_to_stop: bool = False
    """Whether the ranks were asked to take a checkpoint and end."""
    was_abandoned: bool = False
    """Whether ranks ended because they saw no launcher."""

    owner_ended: str = ""
    """The reason why the job's owner no longer needs it. Queried when the job is gone."""
    events: tuple[KubernetesObject, ...] = ()
    """Events of the pods that wait, or of the job if it has no pods. Queried after a minute."""
    nodes: tuple[KubernetesObject, ...] | None = None
    """Candidate nodes of its first pod. Queried after a minute without a node; None if they cannot be listed."""
    pod_log: tuple[str, ...] = ()
    """The last lines of the first pod that died, with a heading. Queried when the job failed without an outcome."""

    @property
    def step(self) -> int:
        """The furthest step of any rank; -1 before the first."""
        return max((beat.step for beat in self.heartbeats.values()), default=-1)

    @property
    def stage(self) -> str:
        """The stage of the job's state, or the rendezvous."""
        meeting = not self.heartbeats or any(beat.phase in BEFORE_TRAINING for beat in self.heartbeats.values())
        return RENDEZVOUS if self.state.stage == "running" and meeting else self.state.stage

    def observation(self, starts: int) -> Observation:
        """The observation for the metrics; `starts` counts those since the last progress."""
        return Observation(
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
        """The unsuccessful outcomes."""
        return [outcome for outcome in self.outcomes if outcome.exit_code]

    @property
    def cause(self) -> Outcome | None:
        """The root failure of the newest attempt; None while it runs, and if no rank reported a failure.

        An attempt in which some ranks succeeded and another failed has ended: the failed rank is restarted, and
        waits for the others in vain.
        """
        if self.is_complete or not self.failed:
            return None
        if self.state.has_ended or len(self.failed) < len(self.outcomes):
            return Outcome.cause(self.failed)
        return None
