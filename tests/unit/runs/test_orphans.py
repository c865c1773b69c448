from typing import Any, cast

import pytest

from understudy.kube.api import Kube
from understudy.kube.identity import PARTS, RUN
from understudy.kube.kind import KINDS, PYTORCHJOB, JobKind
from understudy.runs.orphans import list_jobs, remove, stop

CREATED = "2026-01-01T00:00:00Z"


class Cluster:
    """A run's Job and one training of it, each with a pod in some phase."""

    namespace = "here"
    batch = type("Batch", (), {"list_namespaced_job": None, "read_namespaced_job": None})

    def __init__(self, driver: str, rank: str, kind: JobKind = PYTORCHJOB) -> None:
        self._kind = kind
        theirs = {kind.pod_label: "teacher-1"}
        self._pods = [pod("uid-driver", driver), pod("uid-job", rank, theirs), pod("uid-other", "Running")]

    def has(self, kind: JobKind) -> bool:
        return kind is self._kind

    def call(self, method: object, *arguments: object, **options: object) -> dict[str, Any]:
        del method, arguments, options
        return {"items": [{"metadata": {**meta("run-1"), "uid": "uid-driver"}, "status": {}}]}

    def jobs(self, kind: JobKind, selector: str) -> list[dict[str, Any]]:
        del selector
        assert self.has(kind), "a kind that the cluster does not have is not asked for"
        return [{"metadata": {**meta("teacher-1"), "uid": "uid-job"}, "spec": {}, "status": {}}]

    def pods(self, selector: str) -> list[dict[str, Any]]:
        assert PARTS["app.kubernetes.io/name"] in selector
        return self._pods


def meta(name: str) -> dict[str, Any]:
    return {"name": name, "labels": {RUN: "run-1"}, "creationTimestamp": CREATED}


def pod(owner: str, phase: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    bare: dict[str, Any] = {"name": "p", "labels": labels or {}, "ownerReferences": [{"uid": owner}]}
    if phase == "Dead":  # its node does not answer
        phase, bare["deletionTimestamp"] = "Running", CREATED
    return {"metadata": bare, "spec": {"nodeName": "n" if phase == "Running" else ""}, "status": {"phase": phase}}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("driver", "rank", "stages"),
    [
        ("Running", "Running", {"run-1": "running", "teacher-1": "running"}),
        ("Running", "Pending", {"run-1": "running", "teacher-1": "pulling"}),
        ("Pending", "Running", {"run-1": "pending", "teacher-1": "running"}),
        ("Dead", "Running", {"run-1": "unreachable", "teacher-1": "running"}),
        ("Running", "Dead", {"run-1": "running", "teacher-1": "restarting"}),
    ],
)
def test_the_pods_of_a_job_give_its_stage(driver: str, rank: str, stages: dict[str, str], kind: JobKind) -> None:
    jobs = list_jobs(cast(Kube, Cluster(driver, rank, kind)), 1_800_000_000.0)
    assert {job.name: job.stage for job in jobs} == stages
    assert {job.name: job.kind for job in jobs} == {"run-1": "Job", "teacher-1": kind.name}


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": status}]}}


class Runs(Cluster):
    """A run's Job and its training, each with the conditions that hold."""

    def __init__(self, driver: str | None, training: str | None, code: int = 1, kind: JobKind = PYTORCHJOB) -> None:
        super().__init__("Failed", "Failed", kind)
        proxy = {"name": "a-proxy", "state": {"terminated": {"exitCode": 3 if code != 3 else 1}}}
        state = {"name": "driver", "state": {"terminated": {"exitCode": code}}}
        self._pods[0]["status"] = {"phase": "Failed", "containerStatuses": [proxy, state]}
        self._conditions = [condition(kind)["status"] if kind else {} for kind in (driver, training)]
        self.deleted: list[str] = []

    def call(self, method: object, *arguments: object, **options: object) -> dict[str, Any]:
        if method == "delete":
            self.deleted.append(str(arguments[0]))
            return {}
        return {"items": [{**super().call(method)["items"][0], "status": self._conditions[0]}]}

    def jobs(self, kind: JobKind, selector: str) -> list[dict[str, Any]]:
        return [{**super().jobs(kind, selector)[0], "status": self._conditions[1]}]

    def delete_job(self, kind: JobKind, name: str) -> None:
        assert self.has(kind)
        self.deleted.append(name)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("driver", "ended_well", "ended"),
    [
        (None, False, ["run-1", "teacher-1"]),
        (None, True, ["run-1"]),
        ("Failed", False, ["teacher-1"]),
        ("Complete", True, []),
    ],
)
def test_only_a_running_job_is_stopped(
    monkeypatch: pytest.MonkeyPatch, driver: str | None, ended_well: bool, ended: list[str], kind: JobKind
) -> None:
    monkeypatch.setattr(Cluster.batch, "delete_namespaced_job", "delete", raising=False)
    cluster = Runs(driver, kind.succeeded if ended_well else None, kind=kind)
    assert stop(cast(Kube, cluster), "run-1") == len(ended)
    assert cluster.deleted == ended


@pytest.mark.parametrize(("code", "stage"), [(1, "failed"), (3, "rejected")])
def test_a_run_that_the_gate_rejected_did_not_fail(code: int, stage: str) -> None:
    jobs = list_jobs(cast(Kube, Runs("Failed", "Succeeded", code)), 1_800_000_000.0)
    assert {job.name: job.stage for job in jobs} == {"run-1": stage, "teacher-1": "succeeded"}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_orphan_is_deleted_as_the_kind_that_it_is(kind: JobKind) -> None:
    cluster = Runs("Failed", None, kind=kind)
    _, training = list_jobs(cast(Kube, cluster), 1_800_000_000.0)
    remove(cast(Kube, cluster), training)
    assert cluster.deleted == [training.name]
