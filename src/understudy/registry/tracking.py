"""The protocol of a tracking server and its registry, independent of the client."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from understudy.errors import UnderstudyError
from understudy.registry.server import public_uri

PARAMS = 100  # MLflow's limit per request


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


class TrackingServer(Protocol):
    """A tracking server and its registry. All methods raise UnderstudyError if it cannot be used."""

    def check(self) -> None:
        """Check within seconds that the server can be used, without importing MLflow."""

    def experiment(self, name: str) -> str:
        """The id of the experiment of that name; it is created if it does not exist."""

    def experiments(self) -> list[str]:
        """The ids of all experiments."""

    def runs(self, experiments: Sequence[str], query: str) -> list[str]:
        """The ids of the runs that match a query in MLflow's language, newest first."""

    def experiment_of(self, run_id: str) -> str:
        """The id of the experiment that a run belongs to."""

    def run_tags(self, run_id: str) -> dict[str, str] | None:
        """A run's tags; None if the run does not exist."""

    def has_metrics(self, run_id: str) -> bool:
        """Whether a run has metrics."""

    def make_run(self, experiment: str, started: int, tags: Mapping[str, str], name: str) -> str:
        """Create a run that began at `started` (Unix milliseconds), and return its id."""

    def reopen(self, run_id: str) -> None:
        """Set a run to RUNNING."""

    def end(self, run_id: str, status: str) -> None:
        """End a run now: FINISHED, FAILED or KILLED."""

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set some of a run's tags."""

    def set_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Set a run's parameters."""

    def log(self, run_id: str, values: Sequence[Value]) -> None:
        """Add values to a run's curves."""

    def steps(self, run_id: str) -> set[int]:
        """The steps of a run's curve: all values of a step are sent together, the loss among them."""

    def aliases(self, name: str) -> dict[str, str]:
        """A registered model's versions by alias; empty if the model does not exist."""

    def version_tags(self, name: str, version: str) -> dict[str, str] | None:
        """A version's tags; None if the version does not exist."""

    def versions(self, query: str = "") -> list[Version]:
        """The versions of all registered models that match a query in MLflow's language."""

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Point an alias of a registered model to a version."""

    def drop_alias(self, name: str, alias: str) -> None:
        """Remove an alias of a registered model."""


def in_parts(params: Mapping[str, str]) -> Iterator[list[tuple[str, str]]]:
    """Parameters in batches that MLflow accepts."""
    listed = list(params.items())
    return (listed[start : start + PARAMS] for start in range(0, len(listed), PARAMS))


def deleted(uri: str, name: str, experiment: str) -> UnderstudyError:
    """The error for a deleted experiment: MLflow keeps its name reserved."""
    return UnderstudyError(
        f"{public_uri(uri)}: the experiment {name} was deleted; restore it there (mlflow experiments restore "
        f"--experiment-id {experiment}), or set register.experiment to another name"
    )
