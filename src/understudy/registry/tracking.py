"""A tracking server and its registry: the queries and changes that understudy makes, without files.

There are two clients. over_rest sends requests itself: importing MLflow takes seconds, and its client needs 219 MiB in
a launcher, which runs for hours beside its job, where REST needs 85. over_mlflow uses MLflow's own client, which alone
supports databases and the authentication methods of clouds. The code that does not depend on the client is here.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from understudy.errors import UnderstudyError
from understudy.registry import rest
from understudy.registry.server import public_uri

PARAMS = 100  # MLflow's limit per request
LISTED = 1000  # experiments or versions per response


@dataclass(frozen=True)
class Value:
    """One value of a curve; `timestamp` in Unix milliseconds."""

    key: str
    value: float
    timestamp: int
    step: int


@dataclass(frozen=True)
class Version:
    """A version of a registered model."""

    name: str
    """The model's name."""
    number: str
    tags: Mapping[str, str]
    run: str
    """The MLflow run that made it; empty if it names none."""
    created: float
    """Unix seconds."""


class Experiment(NamedTuple):
    """An experiment of a known name."""

    id: str
    is_deleted: bool
    """MLflow keeps the name of a deleted experiment reserved."""


class RunFacts(TypedDict):
    """The stored facts of a run."""

    experiment: str
    tags: dict[str, str]
    has_metrics: bool


class TrackingServer(ABC):
    """A tracking server and its registry. All methods raise UnderstudyError if it cannot be used."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def experiment(self, name: str) -> str:
        """The id of the experiment of that name; it is created if it does not exist."""
        experiment = self._experiment(name)
        if experiment is None:
            try:
                return self._create_experiment(name)
            except UnderstudyError:
                experiment = self._experiment(name)  # another process may have created it meanwhile
                if experiment is None:
                    raise
        if experiment.is_deleted:
            raise UnderstudyError(
                f"{public_uri(self._uri)}: the experiment {name} was deleted; restore it there (mlflow experiments "
                f"restore --experiment-id {experiment.id}), or set register.experiment to another name"
            )
        return experiment.id

    def experiment_of(self, run_id: str) -> str:
        """The id of the experiment that a run belongs to."""
        run = self._run(run_id)
        if run is None:
            raise rest.unusable(public_uri(self._uri), f"there is no run {run_id}")
        return run["experiment"]

    def run_tags(self, run_id: str) -> dict[str, str] | None:
        """A run's tags; None if the run does not exist."""
        run = self._run(run_id)
        return run["tags"] if run else None

    def has_metrics(self, run_id: str) -> bool:
        """Whether a run has metrics."""
        run = self._run(run_id)
        return run is not None and run["has_metrics"]

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set some of a run's tags."""
        self._log_batch(run_id, tags=tags)

    def set_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Set a run's parameters."""
        items = list(params.items())
        for start in range(0, len(items), PARAMS):
            self._log_batch(run_id, params=dict(items[start : start + PARAMS]))

    def log(self, run_id: str, values: Sequence[Value]) -> None:
        """Add values to a run's curves."""
        self._log_batch(run_id, values=values)

    @abstractmethod
    def check(self) -> None:
        """Check within seconds that the server can be used, without importing MLflow."""

    @abstractmethod
    def experiments(self) -> list[str]:
        """The ids of all experiments."""

    @abstractmethod
    def runs(self, experiments: Sequence[str], query: str) -> list[str]:
        """The ids of the runs that match a query in MLflow's language, newest first."""

    @abstractmethod
    def make_run(self, experiment: str, started: int, tags: Mapping[str, str], name: str) -> str:
        """Create a run that began at `started` (Unix milliseconds), and return its id."""

    @abstractmethod
    def reopen(self, run_id: str) -> None:
        """Set a run to RUNNING."""

    @abstractmethod
    def end(self, run_id: str, status: str) -> None:
        """End a run now: FINISHED, FAILED or KILLED."""

    @abstractmethod
    def steps(self, run_id: str) -> set[int]:
        """The steps of a run's curve: all values of a step are sent together, the loss among them."""

    @abstractmethod
    def aliases(self, name: str) -> dict[str, str]:
        """A registered model's versions by alias; empty if the model does not exist."""

    @abstractmethod
    def version_tags(self, name: str, version: str) -> dict[str, str] | None:
        """A version's tags; None if the version does not exist."""

    @abstractmethod
    def versions(self, query: str = "") -> list[Version]:
        """The versions of all registered models that match a query in MLflow's language."""

    @abstractmethod
    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Point an alias of a registered model to a version."""

    @abstractmethod
    def drop_alias(self, name: str, alias: str) -> None:
        """Remove an alias of a registered model."""

    @abstractmethod
    def _experiment(self, name: str) -> Experiment | None:
        """The experiment of that name, deleted or not; None if there is none."""

    @abstractmethod
    def _create_experiment(self, name: str) -> str:
        """Create an experiment, and return its id."""

    @abstractmethod
    def _run(self, run_id: str) -> RunFacts | None:
        """A run's facts; None if it does not exist."""

    @abstractmethod
    def _log_batch(
        self,
        run_id: str,
        *,
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        values: Sequence[Value] = (),
    ) -> None:
        """Add tags, parameters and values to a run, in one request."""
