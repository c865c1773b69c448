"""Requests to the API server, each made only when a rule could need it."""

from typing import Any, cast

import pytest

from tests.unit.launch.kubernetes.statuses import job_of
from understudy.jobs.specification import JobSpec
from understudy.kube.api import Kube, Refused
from understudy.kube.kind import KINDS, JobKind
from understudy.kube.settings import HOST, REQUIRED
from understudy.kube.timeouts import RECOVERY
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.observation import observe


class Left:
    """A cluster without a job, where a pod of one before is left."""

    def jobs(self, kind: JobKind, selector: str) -> list[dict[str, Any]]:
        return []

    def pods(self, selector: str) -> list[dict[str, Any]]:
        return [{"metadata": {"name": "left", "labels": selector}}]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_pods_of_a_job_before_are_looked_for_where_the_next_one_would_meet_them(job: JobSpec, kind: JobKind) -> None:
    watched_job = job_of(job, kind=kind)
    status = observe(watched_job, cast(Kube, Left()), History(), 0.0)
    selectors = [pod["metadata"]["labels"] for pod in status.pods]
    assert selectors == ([] if kind.replaces_pods else [kind.pods_of(watched_job.name)])


HOMELESS = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}


class Two:
    """A cluster of two nodes, of which the first has the run's own pod, and a job whose pod finds no node."""

    def __init__(self, affinity: dict[str, Any] | None = None, may_list_nodes: bool = True) -> None:
        self._affinity, self._may_list_nodes = affinity or {}, may_list_nodes
        self.requests: list[str] = []

    def job(self, kind: JobKind, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": "1"}, "spec": {}}

    def pods(self, selector: str) -> list[dict[str, Any]]:
        if selector == "understudy.store=store":
            return [{"spec": {"nodeName": "small"}, "status": {"phase": "Running"}}]
        meta, status = {"name": "rank", "uid": "2"}, {"phase": "Pending", "conditions": [HOMELESS]}
        return [{"metadata": meta, "spec": {"affinity": self._affinity}, "status": status}]

    def events(self, reported_object: dict[str, Any]) -> list[dict[str, Any]]:
        self.requests.append("events")
        return []

    def nodes(self) -> list[dict[str, Any]]:
        self.requests.append("nodes")
        if not self._may_list_nodes:
            raise Refused("may not list nodes")
        return [{"metadata": {"name": name}} for name in ("small", "large")]


def nodes_of(job: JobSpec, kube: Two, waited: float = RECOVERY) -> list[str] | None:
    history = History("job")
    before = observe(job_of(job), cast(Kube, kube), history, 0.0)
    status = observe(job_of(job), cast(Kube, kube), history.after(before), waited)
    return None if status.nodes is None else [node["metadata"]["name"] for node in status.nodes]


def near(**term: Any) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: [{"topologyKey": HOST, **term}]}}


@pytest.mark.parametrize(
    ("affinity", "nodes"),
    [
        ({}, ["small", "large"]),
        (near(labelSelector={"matchLabels": {"understudy.store": "store"}}), ["small"]),
        (near(labelSelector={"matchExpressions": []}), ["small", "large"]),
        (near(), ["small", "large"]),
    ],
    ids=["anywhere", "where one node has the store", "a rule of the user's", "one without a selector"],
)
def test_the_nodes_that_count_are_those_that_the_pod_may_go_to(
    job: JobSpec, affinity: dict[str, Any], nodes: list[str]
) -> None:
    assert nodes_of(job, Two(affinity)) == nodes


def test_nodes_that_may_not_be_listed_are_unknown(job: JobSpec) -> None:
    assert nodes_of(job, Two(may_list_nodes=False)) is None


def test_events_and_nodes_are_asked_for_once_a_job_has_waited_for_a_minute(job: JobSpec) -> None:
    kube = Two()
    nodes_of(job, kube, RECOVERY - 1)
    assert kube.requests == []
    nodes_of(job, kube)
    assert kube.requests == ["events", "nodes"]
