"""A tracking server over HTTP, without importing MLflow. Reference: MLflow's REST API, version 2.0."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from understudy.registry import rest, tracking
from understudy.registry.names import EXPERIMENT
from understudy.registry.tracking import Experiment, RunFacts, TrackingServer, Value, Version

PAGE = 5000  # values that a server returns within seconds


class OverRest(TrackingServer):
    """A server at an http(s) address."""

    def check(self) -> None:
        """See TrackingServer."""
        rest.get(self._uri, "experiments/search", max_results="1")

    def experiments(self) -> list[str]:
        """See TrackingServer."""
        listed = self._listed("experiments", "experiments/search", max_results=str(tracking.LISTED))
        return [str(experiment["experiment_id"]) for experiment in listed]

    def runs(self, experiments: Sequence[str], query: str) -> list[str]:
        """See TrackingServer."""
        response = rest.post(self._uri, "runs/search", experiment_ids=list(experiments), filter=query)
        return [str(run["info"]["run_id"]) for run in response.get("runs", ())]

    def make_run(self, experiment: str, started: int, tags: Mapping[str, str], name: str) -> str:
        """See TrackingServer."""
        content = {"experiment_id": experiment, "start_time": started, "tags": _pairs(tags), "run_name": name}
        return str(rest.post(self._uri, "runs/create", **content)["run"]["info"]["run_id"])

    def reopen(self, run_id: str) -> None:
        """See TrackingServer."""
        rest.post(self._uri, "runs/update", run_id=run_id, status="RUNNING")

    def end(self, run_id: str, status: str) -> None:
        """See TrackingServer."""
        rest.post(self._uri, "runs/update", run_id=run_id, status=status, end_time=int(1000 * time.time()))

    def steps(self, run_id: str) -> set[int]:
        """See TrackingServer."""
        history = self._listed(
            "metrics", "metrics/get-history", run_id=run_id, metric_key="loss", max_results=str(PAGE)
        )
        return {int(metric.get("step", 0)) for metric in history}

    def aliases(self, name: str) -> dict[str, str]:
        """See TrackingServer."""
        response = rest.get(self._uri, "registered-models/get", name=name)
        aliases = response["registered_model"].get("aliases", []) if response else []
        return {alias["alias"]: str(alias["version"]) for alias in aliases}

    def version_tags(self, name: str, version: str) -> dict[str, str] | None:
        """See TrackingServer."""
        response = rest.get(self._uri, "model-versions/get", name=name, version=version)
        return _tags(response["model_version"]) if response else None

    def versions(self, query: str = "") -> list[Version]:
        """See TrackingServer."""
        listed = self._listed("model_versions", "model-versions/search", filter=query, max_results=str(tracking.LISTED))
        return [
            Version(
                version["name"],
                str(version["version"]),
                _tags(version),
                version.get("run_id", ""),
                int(version["creation_timestamp"]) / 1000,
            )
            for version in listed
        ]

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """See TrackingServer."""
        rest.post(self._uri, "registered-models/alias", name=name, alias=alias, version=version)

    def drop_alias(self, name: str, alias: str) -> None:
        """See TrackingServer."""
        rest.delete(self._uri, "registered-models/alias", name=name, alias=alias)

    def _experiment(self, name: str) -> Experiment | None:
        response = rest.get(self._uri, "experiments/get-by-name", experiment_name=name)
        if response is None:
            return None
        experiment = response["experiment"]
        return Experiment(str(experiment["experiment_id"]), experiment["lifecycle_stage"] == "deleted")

    def _create_experiment(self, name: str) -> str:
        response = rest.post(self._uri, "experiments/create", name=name, tags=_pairs(EXPERIMENT))
        return str(response["experiment_id"])

    def _run(self, run_id: str) -> RunFacts | None:
        response = rest.get(self._uri, "runs/get", run_id=run_id)
        if response is None:
            return None
        info, data = response["run"]["info"], response["run"]["data"]
        return {
            "experiment": str(info["experiment_id"]),
            "tags": _tags(data),
            "has_metrics": bool(data.get("metrics")),
        }

    def _log_batch(
        self,
        run_id: str,
        *,
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        values: Sequence[Value] = (),
    ) -> None:
        metrics = [asdict(value) for value in values]
        rest.post(self._uri, "runs/log-batch", run_id=run_id, tags=_pairs(tags), params=_pairs(params), metrics=metrics)

    def _listed(self, key: str, endpoint: str, **query: str) -> Iterator[dict[str, Any]]:
        """The items of all pages of a list response, which has them under this key."""
        while True:
            response = rest.get(self._uri, endpoint, **query) or {}
            yield from response.get(key, ())
            token = response.get("next_page_token")
            if not token or token == query.get("page_token"):
                return
            query["page_token"] = token


def _pairs(values: Mapping[str, str] | None) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in (values or {}).items()]


def _tags(entity: Mapping[str, Any]) -> dict[str, str]:
    """The tags of a run or a version."""
    return {tag["key"]: tag["value"] for tag in entity.get("tags", [])}
