"""Prometheus metrics of a job: its launcher's last observation, read at the time of the scrape.

One launcher watches one job and sees all of its ranks through their files. So a scrape of the launcher covers the
ranks, whose pods stay closed. Series are labelled by run and step; all other labels are on understudy_job_info.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NotRequired, get_args

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from typing_extensions import TypedDict

from understudy.jobs.heartbeat import Heartbeat
from understudy.jobs.outcome import Kind
from understudy.kube.job_state import Stage
from understudy.metrics import REGISTRY

RENDEZVOUS = "rendezvous"
"""The pods run, but not every rank has joined the process group."""
STAGES: tuple[str, ...] = (*get_args(Stage), RENDEZVOUS)
SUFFIX = {"gauge": "", "counter": "_total", "info": "_info"}


class Reported(TypedDict):
    """A line of a job's metrics file: step and steps, and for a training further fields of train.reports.Report."""

    step: int
    steps: int
    loss: NotRequired[float]
    learning_rate: NotRequired[float]
    grad_norm: NotRequired[float]
    rate: NotRequired[float]
    memory: NotRequired[int]
    waiting: NotRequired[float | None]
    unit: NotRequired[Literal["steps", "batches"]]
    """Unit of an evaluation's steps."""


CURVE: dict[str, tuple[str, str]] = {
    "step": ("step", "Finished steps; after a restart, those of the last checkpoint."),
    "steps": ("steps", "All steps of the job."),
    "loss": ("loss", "Loss of the last step reported."),
    "learning_rate": ("learning_rate", "Learning rate of that step."),
    "grad_norm": ("gradient_norm", "Norm of its gradient, before clipping."),
    "rate": ("targets_per_second", "Targets (images or tokens, as understudy_job_info says) a second, over all ranks."),
    "memory": ("memory_bytes", "Peak memory of the first rank's GPU, or its resident set."),
}
"""Exported fields of a line: the metric's name after understudy_job_, and its help."""


@dataclass(frozen=True)
class Observation:
    """A launcher's observation of a job in a cluster, in one round."""

    kind: str
    name: str
    """Name of the object in the cluster."""
    stage: str
    """One of STAGES."""
    attempt: int
    """Number of the newest attempt; 0 before the first."""
    failures: tuple[str, ...] = ()
    """Outcome kinds of this run's failed attempts."""
    starts: int = 0
    """Starts since the last progress."""
    running_pods: int = 0
    heartbeats: Mapping[int, Heartbeat] = field(default_factory=dict)
    """Heartbeats by rank."""


class JobMetrics(Collector):
    """Metrics of one job.

    Args:
        run: the run's id.
        step: the step of the pipeline.
        recipe: the recipe's name.
        unit: the unit that the rate counts.
        clock: Unix seconds.
    """

    def __init__(self, run: str, step: str, recipe: str, unit: str, clock: Callable[[], float] = time.time) -> None:
        self._labels = {"run": run, "step": step}
        self._info = {"recipe": recipe, "unit": unit}
        self._clock = clock
        self._reported: Mapping[str, object] = {}
        self._observed: tuple[Observation, float] | None = None
        self._seconds: dict[str, float] = defaultdict(float)

    def report(self, line: Reported) -> None:
        """Record the newest line of the job's metrics file."""
        self._reported = {**line}

    def observe(self, observation: Observation) -> None:
        """Record a round of the launcher."""
        now = self._clock()
        if self._observed:
            previous, at = self._observed
            self._seconds[previous.stage] += max(0.0, now - at)
        self._observed = observation, now

    def collect(self) -> Iterator[Metric]:
        """All metric families, with their current values."""
        observation = self._observed
        identity = {"kind": observation[0].kind, "name": observation[0].name} if observation else {}
        yield self._family("info", "job", "The identity of the job.", [({**self._info, **identity}, 1)])
        for key, (name, description) in CURVE.items():
            value = self._reported.get(key)
            if isinstance(value, int | float):  # written by ranks, which run user code
                yield self._family("gauge", f"job_{name}", description, [({}, value)])
        if observation:
            yield from self._stages(observation[0])
            yield from self._attempts(observation[0])
            yield from self._heartbeats(*observation)

    def _stages(self, observation: Observation) -> Iterator[Metric]:
        now = [({"stage": stage}, float(stage == observation.stage)) for stage in STAGES]
        yield self._family("gauge", "job_stage", "1 for the stage that the job is in, 0 for the others.", now)
        seconds = [({"stage": stage}, self._seconds[stage]) for stage in STAGES]
        yield self._family("counter", "job_stage_seconds", "Seconds in a stage, as this launcher observed.", seconds)

    def _attempts(self, observation: Observation) -> Iterator[Metric]:
        restarts = "Restarts of its ranks, over all launchers."
        yield self._family("counter", "job_restarts", restarts, [({}, max(0, observation.attempt - 1))])
        failures = [({"kind": kind}, observation.failures.count(kind)) for kind in get_args(Kind)]
        yield self._family("counter", "job_failures", "Failed attempts of this run, by the kind of failure.", failures)
        starts = "Starts since its last progress; at 10 the launcher gives up."
        yield self._family("gauge", "job_starts_without_progress", starts, [({}, observation.starts)])

    def _heartbeats(self, observation: Observation, at: float) -> Iterator[Metric]:
        yield self._family("gauge", "job_running_pods", "Its running pods.", [({}, observation.running_pods)])
        beats = [({"rank": str(rank)}, beat.at) for rank, beat in sorted(observation.heartbeats.items())]
        timed = [(labels, when) for labels, when in beats if isinstance(when, int | float)]
        description = "Time of a rank's last heartbeat, by its node's clock."
        yield self._family("gauge", "rank_heartbeat_timestamp_seconds", description, timed)
        round_description = "Time of the launcher's last check of its job."
        yield self._family("gauge", "launcher_round_timestamp_seconds", round_description, [({}, at)])

    def _family(
        self,
        kind: Literal["gauge", "counter", "info"],
        name: str,
        description: str,
        samples: Iterable[tuple[Mapping[str, str], float]],
    ) -> Metric:
        family = Metric(f"understudy_{name}", description, kind)
        for labels, value in samples:
            family.add_sample(f"understudy_{name}{SUFFIX[kind]}", {**self._labels, **labels}, value)
        return family


@contextmanager
def exposed(metrics: JobMetrics) -> Iterator[None]:
    """Expose a job's metrics among those of this process, within the context."""
    REGISTRY.register(metrics)
    try:
        yield
    finally:
        REGISTRY.unregister(metrics)
