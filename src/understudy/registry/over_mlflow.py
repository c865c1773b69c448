"""A tracking server over MLflow's own client: a database, or a server with a cloud's authentication, and all files."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from understudy.registry import rest, tracking
from understudy.registry.names import EXPERIMENT
from understudy.registry.server import URI, public_uri, translated
from understudy.registry.tracking import Experiment, RunFacts, TrackingServer, Value, Version

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Dataset

T = TypeVar("T")
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
SECONDS = 5.0


def connect(uri: str) -> "MlflowClient":
    """MLflow's client of a server.

    Raises:
        UnderstudyError: the server does not respond.
    """
    address, previous_uri = _move_credentials(uri), os.environ.get(URI)
    with translated(uri):
        import mlflow

        # Parts of MLflow use its global URI. Setting it also sets the variable, which a later run here would read.
        mlflow.set_tracking_uri(address)
        if previous_uri is None:
            os.environ.pop(URI, None)
        else:
            os.environ[URI] = previous_uri
        return mlflow.MlflowClient(address)


def _move_credentials(uri: str) -> str:
    """Move an address's credentials to environment variables: MLflow puts addresses into error messages and tags."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return uri
    os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username or "")
    os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
    return public_uri(uri)


class OverMlflow(TrackingServer):
    """A server of any kind, and its files. MLflow is imported on first use."""

    artifact_location: str | None = None
    """The location of a new experiment's files; None if the server decides."""

    @cached_property
    def client(self) -> "MlflowClient":
        """MLflow's own client."""
        self.check()
        return connect(self._uri)

    def check(self) -> None:
        """See TrackingServer."""
        parts = urlsplit(self._uri)
        port = parts.port or PORTS.get(parts.scheme.split("+")[0])
        if not parts.hostname or not port:
            return
        try:
            socket.create_connection((parts.hostname, port), timeout=SECONDS).close()
        except OSError as error:
            raise rest.unusable(public_uri(self._uri), str(error)) from error

    def experiments(self) -> list[str]:
        """See TrackingServer."""
        listed = self._listed(lambda client, page: client.search_experiments(**page))
        return [str(experiment.experiment_id) for experiment in listed]

    def runs(self, experiments: Sequence[str], query: str) -> list[str]:
        """See TrackingServer."""
        runs = self._call(lambda client: client.search_runs(list(experiments), query))
        return [str(run.info.run_id) for run in runs]

    def make_run(self, experiment: str, started: int, tags: Mapping[str, str], name: str) -> str:
        """See TrackingServer."""
        return str(self._call(lambda client: client.create_run(experiment, started, dict(tags), name)).info.run_id)

    def reopen(self, run_id: str) -> None:
        """See TrackingServer."""
        self._call(lambda client: client.update_run(run_id, status="RUNNING"))

    def end(self, run_id: str, status: str) -> None:
        """See TrackingServer."""
        self._call(lambda client: client.set_terminated(run_id, status))

    def steps(self, run_id: str) -> set[int]:
        """See TrackingServer."""
        return {metric.step for metric in self._call(lambda client: client.get_metric_history(run_id, "loss"))}

    def aliases(self, name: str) -> dict[str, str]:
        """See TrackingServer."""

        def read(client: "MlflowClient") -> dict[str, str]:
            return {alias: str(version) for alias, version in client.get_registered_model(name).aliases.items()}

        return self._read(f"aliases of {name}", read) or {}

    def version_tags(self, name: str, version: str) -> dict[str, str] | None:
        """See TrackingServer."""
        return self._read(
            f"tags of {name}/{version}", lambda client: dict(client.get_model_version(name, version).tags)
        )

    def versions(self, query: str = "") -> list[Version]:
        """See TrackingServer."""
        listed = self._listed(lambda client, page: client.search_model_versions(query, **page))
        return [
            Version(
                version.name,
                str(version.version),
                version.tags,
                version.run_id or "",
                version.creation_timestamp / 1000,
            )
            for version in listed
        ]

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """See TrackingServer."""
        self._call(lambda client: client.set_registered_model_alias(name, alias, version))

    def drop_alias(self, name: str, alias: str) -> None:
        """See TrackingServer."""
        self._call(lambda client: client.delete_registered_model_alias(name, alias))

    def link_dataset(self, run_id: str, dataset: "Dataset", context: str) -> None:
        """Link a run to a data set; `context` is its purpose."""

        def link(client: "MlflowClient") -> None:
            from mlflow.entities import DatasetInput, InputTag

            client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

        self._call(link)

    def download(self, source: str, folder: Path) -> Path:
        """Download an artifact to a folder, and return its path there."""

        def fetch(client: "MlflowClient") -> Path:
            del client  # MLflow's function uses the address that connect() has set
            from mlflow.artifacts import download_artifacts

            return Path(download_artifacts(source, dst_path=str(folder)))

        return self._call(fetch)

    def _experiment(self, name: str) -> Experiment | None:
        experiment = self._call(lambda client: client.get_experiment_by_name(name))
        if experiment is None:
            return None
        return Experiment(str(experiment.experiment_id), experiment.lifecycle_stage == "deleted")

    def _create_experiment(self, name: str) -> str:
        return str(self._call(lambda client: client.create_experiment(name, self.artifact_location, EXPERIMENT)))

    def _run(self, run_id: str) -> RunFacts | None:
        def read(client: "MlflowClient") -> RunFacts:
            run = client.get_run(run_id)
            return {
                "experiment": str(run.info.experiment_id),
                "tags": dict(run.data.tags),
                "has_metrics": bool(run.data.metrics),
            }

        return self._read(f"run {run_id}", read)

    def _log_batch(
        self,
        run_id: str,
        *,
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        values: Sequence[Value] = (),
    ) -> None:
        def log(client: "MlflowClient") -> None:
            from mlflow.entities import Metric, Param, RunTag

            metrics = [Metric(value.key, value.value, value.timestamp, value.step) for value in values]
            mlflow_params = [Param(*item) for item in (params or {}).items()]
            client.log_batch(run_id, metrics, mlflow_params, [RunTag(*item) for item in (tags or {}).items()])

        self._call(log)

    def _listed(self, search: "Callable[[MlflowClient, dict[str, Any]], Any]") -> list[Any]:
        """The items of all pages of a search."""

        def all_pages(client: "MlflowClient") -> list[Any]:
            items, token = list[Any](), None
            while True:
                page = search(client, {"max_results": tracking.LISTED, "page_token": token})
                items += page
                token = page.token
                if not token:
                    return items

        return self._call(all_pages)

    def _read(self, query: str, read: "Callable[[MlflowClient], T]") -> T | None:
        """The result of a query, which can be written as JSON; None if its subject does not exist."""
        del query
        client = self.client
        from mlflow.exceptions import MlflowException

        with translated(self._uri):
            try:
                return read(client)
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    return None
                raise

    def _call(self, call: "Callable[[MlflowClient], T]") -> T:
        """The result of a call of MLflow's client, which is connected first."""
        client = self.client
        with translated(self._uri):
            return call(client)
