"""What recording a run asks of a tracking server: over REST where that is spoken, otherwise of MLflow's own client.

A launcher watches for hours beside its job, and MLflow's client alone takes more memory than all the rest of it.
Reference: MLflow's REST API, version 2.0.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from understudy.errors import UnderstudyError
from understudy.registry import rest
from understudy.registry.server import artifacts, connect, public_uri, translated

if TYPE_CHECKING:
    from mlflow import MlflowClient

PARAMS = 100  # what MLflow takes at once
PAGE = 5000  # values that a server answers within seconds


@dataclass(frozen=True)
class Value:
    """One value of a curve; `timestamp` in Unix milliseconds."""

    key: str
    value: float
    timestamp: int
    step: int


class Tracking(Protocol):
    """A tracking server, as far as recording needs it. Everything raises UnderstudyError when it cannot be used."""

    def experiment(self, name: str) -> str:
        """The id of the experiment of that name; it is made when there is none."""

    def runs(self, experiment: str, query: str) -> list[str]:
        """The ids of the runs that a query in MLflow's language finds."""

    def make_run(self, experiment: str, started: int, tags: Mapping[str, str], name: str) -> str:
        """The id of a new run that began at `started` (Unix milliseconds)."""

    def reopen(self, run_id: str) -> None:
        """Set a run to RUNNING."""

    def end(self, run_id: str, status: str) -> None:
        """End a run now: FINISHED, FAILED or KILLED."""

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        """Set one of a run's tags."""

    def log(self, run_id: str, values: Sequence[Value]) -> None:
        """Add values to a run's curves."""

    def set_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Set a run's parameters."""

    def steps(self, run_id: str) -> set[int]:
        """The steps of a run's curve: all values of a step are sent together, the loss among them."""


def tracking(uri: str) -> Tracking:
    """The server at an address.

    Raises:
        UnderstudyError: it cannot be used.
    """
    return OverRest(uri) if rest.is_spoken_by(uri) else OfClient(uri, connect(uri))


class OverRest:
    """A server that is asked over http, without importing MLflow."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def experiment(self, name: str) -> str:
        """See Tracking."""
        found = self._named(name)
        if found is None:
            try:
                return str(rest.post(self._uri, "experiments/create", name=name)["experiment_id"])
            except UnderstudyError:
                found = self._named(name)  # another process may have made it in between
                if found is None:
                    raise
        if found["lifecycle_stage"] == "deleted":
            raise _deleted(self._uri, name, found["experiment_id"])
        return str(found["experiment_id"])

    def _named(self, name: str) -> dict[str, Any] | None:
        found = rest.get(self._uri, "experiments/get-by-name", experiment_name=name)
        return dict(found["experiment"]) if found else None

    def runs(self, experiment: str, query: str) -> list[str]:
        """See Tracking."""
        found = rest.post(self._uri, "runs/search", experiment_ids=[experiment], filter=query)
        return [str(run["info"]["run_id"]) for run in found.get("runs", ())]

    def make_run(self, experiment: str, started: int, tags: Mapping[str, str], name: str) -> str:
        """See Tracking."""
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        made = rest.post(
            self._uri, "runs/create", experiment_id=experiment, start_time=started, tags=listed, run_name=name
        )
        return str(made["run"]["info"]["run_id"])

    def reopen(self, run_id: str) -> None:
        """See Tracking."""
        rest.post(self._uri, "runs/update", run_id=run_id, status="RUNNING")

    def end(self, run_id: str, status: str) -> None:
        """See Tracking."""
        rest.post(self._uri, "runs/update", run_id=run_id, status=status, end_time=int(1000 * time.time()))

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        """See Tracking."""
        rest.post(self._uri, "runs/set-tag", run_id=run_id, key=key, value=value)

    def log(self, run_id: str, values: Sequence[Value]) -> None:
        """See Tracking."""
        rest.post(self._uri, "runs/log-batch", run_id=run_id, metrics=[asdict(value) for value in values])

    def set_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """See Tracking."""
        for part in _parts(params):
            listed = [{"key": key, "value": value} for key, value in part]
            rest.post(self._uri, "runs/log-batch", run_id=run_id, params=listed)

    def steps(self, run_id: str) -> set[int]:
        """See Tracking."""
        return {int(metric.get("step", 0)) for metric in self._history(run_id)}

    def _history(self, run_id: str) -> Iterator[dict[str, Any]]:
        query = {"run_id": run_id, "metric_key": "loss", "max_results": str(PAGE)}
        while True:
            found = rest.get(self._uri, "metrics/get-history", **query) or {}
            yield from found.get("metrics", ())
            token = found.get("next_page_token")
            if not token or token == query.get("page_token"):
                return
            query["page_token"] = token


class OfClient:
    """A server that only MLflow's client knows how to ask: the local database, or one with a cloud's way of signing in.

    The client is at hand for whoever needs more of it than recording does.
    """

    def __init__(self, uri: str, client: "MlflowClient") -> None:
        self._uri, self._client = uri, client

    def experiment(self, name: str) -> str:
        """See Tracking."""
        from mlflow.exceptions import MlflowException

        with translated(self._uri):
            found = self._client.get_experiment_by_name(name)
            if found is None:
                try:
                    return str(self._client.create_experiment(name, artifact_location=artifacts(self._uri)))
                except MlflowException:
                    found = self._client.get_experiment_by_name(name)  # another process may have made it in between
                    if found is None:
                        raise
        if found.lifecycle_stage == "deleted":
            raise _deleted(self._uri, name, found.experiment_id)
        return str(found.experiment_id)

    def runs(self, experiment: str, query: str) -> list[str]:
        """See Tracking."""
        with translated(self._uri):
            return [str(run.info.run_id) for run in self._client.search_runs([experiment], query)]

    def make_run(self, experiment: str, started: int, tags: Mapping[str, str], name: str) -> str:
        """See Tracking."""
        with translated(self._uri):
            return str(self._client.create_run(experiment, started, dict(tags), name).info.run_id)

    def reopen(self, run_id: str) -> None:
        """See Tracking."""
        with translated(self._uri):
            self._client.update_run(run_id, status="RUNNING")

    def end(self, run_id: str, status: str) -> None:
        """See Tracking."""
        with translated(self._uri):
            self._client.set_terminated(run_id, status)

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        """See Tracking."""
        with translated(self._uri):
            self._client.set_tag(run_id, key, value)

    def log(self, run_id: str, values: Sequence[Value]) -> None:
        """See Tracking."""
        from mlflow.entities import Metric

        with translated(self._uri):
            self._client.log_batch(run_id, metrics=[Metric(v.key, v.value, v.timestamp, v.step) for v in values])

    def set_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """See Tracking."""
        from mlflow.entities import Param

        with translated(self._uri):
            for part in _parts(params):
                self._client.log_batch(run_id, params=[Param(key, value) for key, value in part])

    def steps(self, run_id: str) -> set[int]:
        """See Tracking."""
        with translated(self._uri):
            return {metric.step for metric in self._client.get_metric_history(run_id, "loss")}


def _parts(params: Mapping[str, str]) -> Iterator[list[tuple[str, str]]]:
    listed = list(params.items())
    return (listed[start : start + PARAMS] for start in range(0, len(listed), PARAMS))


def _deleted(uri: str, name: str, experiment: str) -> UnderstudyError:
    return UnderstudyError(
        f"{public_uri(uri)}: the experiment {name} was deleted; restore it there (mlflow experiments restore "
        f"--experiment-id {experiment}), or set register.experiment to another name"
    )
