"""A tracking server over MLflow's own client: a database, or a server with a cloud's authentication."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from understudy.registry import rest
from understudy.registry.names import EXPERIMENT
from understudy.registry.server import URI, public_uri, translated
from understudy.registry.tracking import Value, Version, deleted, in_parts

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Dataset

PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
SECONDS = 5.0
PAGE = 1000  # experiments or versions per response


def connect(uri: str) -> "MlflowClient":
    """MLflow's client of a server.

    Raises:
        UnderstudyError: the server does not respond.
    """
    bare, before = _without_credentials(uri), os.environ.get(URI)
    with translated(uri):
        import mlflow

        # Parts of MLflow use its global URI. Setting it also sets the variable, which a later run here would read.
        mlflow.set_tracking_uri(bare)
        if before is None:
            os.environ.pop(URI, None)
        else:
            os.environ[URI] = before
        return mlflow.MlflowClient(bare)


def _without_credentials(uri: str) -> str:
    """Move an address's credentials to environment variables: MLflow puts addresses into error messages and tags."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return uri
    os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username or "")
    os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
    return public_uri(uri)


class OverMlflow:
    """See TrackingServer. MLflow is imported on first use."""

    artifact_location: str | None = None
    """The location of a new experiment's files; None if the server decides."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

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

    def experiment(self, name: str) -> str:
        """See TrackingServer."""
        client = self.client
        from mlflow.exceptions import MlflowException

        with translated(self._uri):
            found = client.get_experiment_by_name(name)
            if found is None:
                try:
                    return str(client.create_experiment(name, self.artifact_location, EXPERIMENT))
                except MlflowException:
                    found = client.get_experiment_by_name(name)  # another process may have created it meanwhile
                    if found is None:
                        raise
        if found.lifecycle_stage == "deleted":
            raise deleted(self._uri, name, found.experiment_id)
        return str(found.experiment_id)

    def experiments(self) -> list[str]:
        """See TrackingServer."""
        client, ids, token = self.client, list[str](), None
        with translated(self._uri):
            while True:
                page = client.search_experiments(max_results=PAGE, page_token=token)
                ids += [str(experiment.experiment_id) for experiment in page]
                if not (token := page.token):
                    return ids

    def runs(self, experiments: Sequence[str], query: str) -> list[str]:
        """See TrackingServer."""
        client = self.client
        with translated(self._uri):
            return [str(run.info.run_id) for run in client.search_runs(list(experiments), query)]

    def experiment_of(self, run_id: str) -> str:
        """See TrackingServer."""
        client = self.client
        with translated(self._uri):
            return str(client.get_run(run_id).info.experiment_id)

    def run_tags(self, run_id: str) -> dict[str, str] | None:
        """See TrackingServer."""
        return self._answer(f"tags of run {run_id}", lambda client: client.get_run(run_id).data.tags)

    def has_metrics(self, run_id: str) -> bool:
        """See TrackingServer."""
        return bool(self._answer(f"metrics of run {run_id}", lambda client: client.get_run(run_id).data.metrics))

    def make_run(self, experiment: str, started: int, tags: Mapping[str, str], name: str) -> str:
        """See TrackingServer."""
        client = self.client
        with translated(self._uri):
            return str(client.create_run(experiment, started, dict(tags), name).info.run_id)

    def reopen(self, run_id: str) -> None:
        """See TrackingServer."""
        client = self.client
        with translated(self._uri):
            client.update_run(run_id, status="RUNNING")

    def end(self, run_id: str, status: str) -> None:
        """See TrackingServer."""
        client = self.client
        with translated(self._uri):
            client.set_terminated(run_id, status)

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """See TrackingServer."""
        client = self.client
        from mlflow.entities import RunTag

        with translated(self._uri):
            client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    def set_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """See TrackingServer."""
        client = self.client
        from mlflow.entities import Param

        with translated(self._uri):
            for part in in_parts(params):
                client.log_batch(run_id, params=[Param(key, value) for key, value in part])

    def log(self, run_id: str, values: Sequence[Value]) -> None:
        """See TrackingServer."""
        client = self.client
        from mlflow.entities import Metric

        with translated(self._uri):
            client.log_batch(run_id, metrics=[Metric(v.key, v.value, v.timestamp, v.step) for v in values])

    def steps(self, run_id: str) -> set[int]:
        """See TrackingServer."""
        client = self.client
        with translated(self._uri):
            return {metric.step for metric in client.get_metric_history(run_id, "loss")}

    def aliases(self, name: str) -> dict[str, str]:
        """See TrackingServer."""

        def ask(client: "MlflowClient") -> dict[str, str]:
            return {alias: str(version) for alias, version in client.get_registered_model(name).aliases.items()}

        return self._answer(f"aliases of {name}", ask) or {}

    def version_tags(self, name: str, version: str) -> dict[str, str] | None:
        """See TrackingServer."""
        return self._answer(f"tags of {name}/{version}", lambda client: client.get_model_version(name, version).tags)

    def versions(self, query: str = "") -> list[Version]:
        """See TrackingServer."""
        client, found, token = self.client, list[Version](), None
        with translated(self._uri):
            while True:
                page = client.search_model_versions(query, max_results=PAGE, page_token=token)
                found += [
                    Version(one.name, str(one.version), one.tags, one.run_id or "", one.creation_timestamp / 1000)
                    for one in page
                ]
                token = page.token
                if not token:
                    return found

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """See TrackingServer."""
        client = self.client
        with translated(self._uri):
            client.set_registered_model_alias(name, alias, version)

    def drop_alias(self, name: str, alias: str) -> None:
        """See TrackingServer."""
        client = self.client
        with translated(self._uri):
            client.delete_registered_model_alias(name, alias)

    def link_dataset(self, run_id: str, dataset: "Dataset", context: str) -> None:
        """Link a run to a data set; `context` is its purpose."""
        client = self.client
        from mlflow.entities import DatasetInput, InputTag

        with translated(self._uri):
            client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def download(self, source: str, folder: Path) -> Path:
        """Download an artifact to a folder, and return its path there."""
        self.client  # noqa: B018 (MLflow's functions ask the server that its client has set)
        from mlflow.artifacts import download_artifacts

        with translated(self._uri):
            return Path(download_artifacts(source, dst_path=str(folder)))

    def _answer(self, question: str, ask: "Callable[[MlflowClient], dict[str, str]]") -> dict[str, str] | None:
        """The result of a query; None if its subject does not exist."""
        del question
        client = self.client
        from mlflow.exceptions import MlflowException

        with translated(self._uri):
            try:
                return dict(ask(client))
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    return None
                raise
