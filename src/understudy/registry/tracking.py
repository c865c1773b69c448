"""What understudy asks of a tracking server and its registry, however that is done."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from understudy.errors import UnderstudyError
from understudy.registry.server import public_uri

PARAMS = 100  # what MLflow takes at once


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
    """The model's."""
    number: str
    tags: Mapping[str, str]
    run: str
    """The MLflow run that made it; empty where it names none."""
    created: float
    """Unix seconds."""


class TrackingServer(Protocol):
    """A tracking server and its registry. Everything raises UnderstudyError when it cannot be used."""

    def check(self) -> None:
        """Find out within seconds whether the server can be used, without importing MLflow."""

    def experiment(self, name: str) -> str:
        """The id of the experiment of that name; it is made when there is none."""

    def experiments(self) -> list[str]:
        """The ids of all experiments."""

    def runs(self, experiments: Sequence[str], query: str) -> list[str]:
        """The ids of the runs that a query in MLflow's language finds, the newest first."""

    def experiment_of(self, run_id: str) -> str:
        """The id of the experiment that a run belongs to."""

    def run_tags(self, run_id: str) -> dict[str, str] | None:
        """A run's tags; None when there is no such run."""

    def has_metrics(self, run_id: str) -> bool:
        """Whether a run has any."""

    def make_run(self, experiment: str, started: int, tags: Mapping[str, str], name: str) -> str:
        """The id of a new run that began at `started` (Unix milliseconds)."""

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
        """A registered model's aliases and the versions they point to; none when there is no such model."""

    def version_tags(self, name: str, version: str) -> dict[str, str] | None:
        """A version's tags; None when there is no such version."""

    def versions(self, query: str = "") -> list[Version]:
        """The versions of all registered models that a query in MLflow's language finds."""

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Let an alias of a registered model point to a version."""

    def drop_alias(self, name: str, alias: str) -> None:
        """Take an alias of a registered model away."""


def in_parts(params: Mapping[str, str]) -> Iterator[list[tuple[str, str]]]:
    """Parameters in parts that MLflow takes at once."""
    listed = list(params.items())
    return (listed[start : start + PARAMS] for start in range(0, len(listed), PARAMS))


def deleted(uri: str, name: str, experiment: str) -> UnderstudyError:
    """The error for an experiment that was deleted: MLflow keeps its name, and lets nobody use it."""
    return UnderstudyError(
        f"{public_uri(uri)}: the experiment {name} was deleted; restore it there (mlflow experiments restore "
        f"--experiment-id {experiment}), or set register.experiment to another name"
    )
