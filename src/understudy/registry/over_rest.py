"""A tracking server over HTTP, without importing MLflow. Reference: MLflow's REST API, version 2.0."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from understudy.errors import UnderstudyError
from understudy.registry import rest
from understudy.registry.names import EXPERIMENT
from understudy.registry.server import public_uri
from understudy.registry.tracking import Value, Version, deleted, in_parts

PAGE = 5000  # values that a server returns within seconds
LISTED = 1000  # experiments or versions per response


class OverRest:
    """See TrackingServer."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def check(self) -> None:
        """See TrackingServer."""
        self._get("experiments/search", max_results="1")

    def experiment(self, name: str) -> str:
        """See TrackingServer."""
        found = self._named(name)
        if found is None:
            try:
                made = self._post("experiments/create", name=name, tags=_pairs(EXPERIMENT.items()))
                return str(made["experiment_id"])
            except UnderstudyError:
                found = self._named(name)  # another process may have created it meanwhile
                if found is None:
                    raise
        if found["lifecycle_stage"] == "deleted":
            raise deleted(self._uri, name, found["experiment_id"])
        return str(found["experiment_id"])

    def _named(self, name: str) -> Mapping[str, str] | None:
        found = self._get("experiments/get-by-name", experiment_name=name)
        return dict(found["experiment"]) if found else None

    def experiments(self) -> list[str]:
        """See TrackingServer."""
        listed = self._listed("experiments", "experiments/search", max_results=str(LISTED))
        return [str(experiment["experiment_id"]) for experiment in listed]

    def runs(self, experiments: Sequence[str], query: str) -> list[str]:
        """See TrackingServer."""
        found = self._post("runs/search", experiment_ids=list(experiments), filter=query)
        return [str(run["info"]["run_id"]) for run in found.get("runs", ())]

    def experiment_of(self, run_id: str) -> str:
        """See TrackingServer."""
        found = self._get("runs/get", run_id=run_id)
        if found is None:
            raise rest.unusable(public_uri(self._uri), f"there is no run {run_id}")
        return str(found["run"]["info"]["experiment_id"])

    def run_tags(self, run_id: str) -> dict[str, str] | None:
        """See TrackingServer."""
        found = self._get("runs/get", run_id=run_id)
        return _by_key(found["run"]["data"]) if found else None

    def has_metrics(self, run_id: str) -> bool:
        """See TrackingServer."""
        found = self._get("runs/get", run_id=run_id)
        return bool(found and found["run"]["data"].get("metrics"))

    def make_run(self, experiment: str, started: int, tags: Mapping[str, str], name: str) -> str:
        """See TrackingServer."""
        made = self._post(
            "runs/create", experiment_id=experiment, start_time=started, tags=_pairs(tags.items()), run_name=name
        )
        return str(made["run"]["info"]["run_id"])

    def reopen(self, run_id: str) -> None:
        """See TrackingServer."""
        self._post("runs/update", run_id=run_id, status="RUNNING")

    def end(self, run_id: str, status: str) -> None:
        """See TrackingServer."""
        self._post("runs/update", run_id=run_id, status=status, end_time=int(1000 * time.time()))

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """See TrackingServer."""
        self._post("runs/log-batch", run_id=run_id, tags=_pairs(tags.items()))

    def set_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """See TrackingServer."""
        for part in in_parts(params):
            self._post("runs/log-batch", run_id=run_id, params=_pairs(part))

    def log(self, run_id: str, values: Sequence[Value]) -> None:
        """See TrackingServer."""
        self._post("runs/log-batch", run_id=run_id, metrics=[asdict(value) for value in values])

    def steps(self, run_id: str) -> set[int]:
        """See TrackingServer."""
        history = self._listed(
            "metrics", "metrics/get-history", run_id=run_id, metric_key="loss", max_results=str(PAGE)
        )
        return {int(metric.get("step", 0)) for metric in history}

    def aliases(self, name: str) -> dict[str, str]:
        """See TrackingServer."""
        found = self._get("registered-models/get", name=name)
        given = found["registered_model"].get("aliases", []) if found else []
        return {alias["alias"]: str(alias["version"]) for alias in given}

    def version_tags(self, name: str, version: str) -> dict[str, str] | None:
        """See TrackingServer."""
        found = self._get("model-versions/get", name=name, version=version)
        return _by_key(found["model_version"]) if found else None

    def versions(self, query: str = "") -> list[Version]:
        """See TrackingServer."""
        listed = self._listed("model_versions", "model-versions/search", filter=query, max_results=str(LISTED))
        return [
            Version(
                found["name"],
                str(found["version"]),
                _by_key(found),
                found.get("run_id", ""),
                int(found["creation_timestamp"]) / 1000,
            )
            for found in listed
        ]

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """See TrackingServer."""
        self._post("registered-models/alias", name=name, alias=alias, version=version)

    def drop_alias(self, name: str, alias: str) -> None:
        """See TrackingServer."""
        rest.delete(self._uri, "registered-models/alias", name=name, alias=alias)

    def _listed(self, what: str, endpoint: str, **query: str) -> Iterator[dict[str, Any]]:
        """The items of all pages of a list response."""
        while True:
            found = self._get(endpoint, **query) or {}
            yield from found.get(what, ())
            token = found.get("next_page_token")
            if not token or token == query.get("page_token"):
                return
            query["page_token"] = token

    def _get(self, endpoint: str, **query: str) -> Any:
        return rest.get(self._uri, endpoint, **query)

    def _post(self, endpoint: str, **content: Any) -> Any:
        return rest.post(self._uri, endpoint, **content)


def _pairs(values: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values]


def _by_key(answer: Mapping[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in answer.get("tags", [])}
