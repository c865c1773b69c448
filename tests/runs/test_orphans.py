from typing import Any, cast

import pytest

from understudy.launch.kubernetes.api import Kube
from understudy.launch.kubernetes.identity import PARTS, RUN
from understudy.launch.kubernetes.kind import JobKind
from understudy.runs.orphans import known, stop, why_over

CREATED = "2026-01-01T00:00:00Z"


class Cluster:
    """A run's Job and one training of it, each with a pod in some phase."""

    namespace = "here"
    batch = type("Batch", (), {"list_namespaced_job": None, "read_namespaced_job": None})

    def __init__(self, driver: str, rank: str) -> None:
        self._pods = [pod("uid-driver", driver), pod("uid-job", rank), pod("uid-other", "Running")]

    def ask(self, question: object, *arguments: object, **options: object) -> dict[str, Any]:
        del question, arguments, options
        return {"items": [{"metadata": {**meta("run-1"), "uid": "uid-driver"}, "status": {}}]}

    def jobs(self, kind: JobKind, selector: str) -> list[dict[str, Any]]:
        del selector
        return [{"metadata": {**meta("teacher-1"), "uid": "uid-job"}, "spec": {}, "status": {}}]

    def pods(self, selector: str) -> list[dict[str, Any]]:
        assert PARTS["app.kubernetes.io/name"] in selector
        return self._pods


def meta(name: str) -> dict[str, Any]:
    return {"name": name, "labels": {RUN: "run-1"}, "creationTimestamp": CREATED}


def pod(owner: str, phase: str) -> dict[str, Any]:
    bare: dict[str, Any] = {"name": "p", "ownerReferences": [{"uid": owner}]}
    if phase == "Dead":  # its node does not answer
        phase, bare["deletionTimestamp"] = "Running", CREATED
    return {"metadata": bare, "spec": {"nodeName": "n" if phase == "Running" else ""}, "status": {"phase": phase}}


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
def test_a_job_is_where_its_own_pods_are(driver: str, rank: str, stages: dict[str, str]) -> None:
    found = known(cast(Kube, Cluster(driver, rank)), 1_800_000_000.0)
    assert {one.name: one.stage for one in found} == stages


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "run-1", "uid": "uid-driver"}


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": status}]}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        (condition("Suspended"), ""),
        (condition("Failed", "False"), ""),
        (condition("Complete"), "Job run-1 has ended"),
        (condition("FailureTarget"), "Job run-1 has ended"),  # its pods are only being removed
        ({"spec": {"activeDeadlineSeconds": 0}}, "Job run-1 was terminated"),
        ({"metadata": {"uid": "uid-driver", "deletionTimestamp": CREATED}}, "Job run-1 was deleted"),
        ({"metadata": {"uid": "uid-of-another"}}, "Job run-1 is not there any more"),
        (None, "Job run-1 is not there any more"),
    ],
)
def test_what_a_job_belongs_to_needs_it_until_it_ends(change: dict[str, Any] | None, why: str) -> None:
    job = None if change is None else {"metadata": {"uid": "uid-driver"}, "spec": {}, **change}

    class Answering(Cluster):
        def ask(self, question: object, *arguments: object, **options: object) -> Any:
            del question, arguments, options
            return job

    cluster = cast(Kube, Answering("Running", "Running"))
    assert why_over(cluster, OWNER) == why
    assert why_over(cluster, {**OWNER, "kind": "ReplicaSet"}) == "", "that starts another pod"


WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "digits-x", "uid": "uid-flow"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": {"phase": "Running"}}, ""),
        ({"spec": {"activeDeadlineSeconds": 0}}, "Workflow digits-x was terminated"),  # as KFP terminates a run
        ({"status": {"phase": "Succeeded"}}, "Workflow digits-x has ended"),
        ({"status": {"phase": "Error"}}, "Workflow digits-x has ended"),
        (None, "Workflow digits-x is not there any more"),
    ],
)
def test_a_run_of_kfp_needs_its_jobs_until_its_workflow_ends(change: dict[str, Any] | None, why: str) -> None:
    asked: list[object] = []

    class Answering(Cluster):
        custom = type("Custom", (), {"get_namespaced_custom_object": "get"})

        def ask(self, question: object, *arguments: object, **options: object) -> Any:
            asked.extend([question, *arguments])
            return None if change is None else {"metadata": {"uid": "uid-flow"}, "spec": {}, **change}

    assert why_over(cast(Kube, Answering("Running", "Running")), WORKFLOW) == why
    assert asked == ["get", "argoproj.io", "v1alpha1", "here", "workflows", "digits-x"]


class Runs(Cluster):
    """A run's Job and its training, each with the conditions that hold."""

    def __init__(self, driver: str | None, training: str | None, code: int = 1) -> None:
        super().__init__("Failed", "Failed")
        beside = {"name": "a-proxy", "state": {"terminated": {"exitCode": 3 if code != 3 else 1}}}
        state = {"name": "driver", "state": {"terminated": {"exitCode": code}}}
        self._pods[0]["status"] = {"phase": "Failed", "containerStatuses": [beside, state]}
        self._conditions = [condition(kind)["status"] if kind else {} for kind in (driver, training)]
        self.deleted: list[str] = []

    def ask(self, question: object, *arguments: object, **options: object) -> dict[str, Any]:
        if question == "delete":
            self.deleted.append(str(arguments[0]))
            return {}
        return {"items": [{**super().ask(question)["items"][0], "status": self._conditions[0]}]}

    def jobs(self, kind: JobKind, selector: str) -> list[dict[str, Any]]:
        return [{**super().jobs(kind, selector)[0], "status": self._conditions[1]}]

    def delete_job(self, kind: JobKind, name: str) -> None:
        self.deleted.append(name)


@pytest.mark.parametrize(
    ("driver", "training", "ended"),
    [
        (None, None, ["run-1", "teacher-1"]),
        (None, "Succeeded", ["run-1"]),
        ("Failed", None, ["teacher-1"]),
        ("Complete", "Succeeded", []),
    ],
)
def test_only_what_goes_on_is_stopped(
    monkeypatch: pytest.MonkeyPatch, driver: str | None, training: str | None, ended: list[str]
) -> None:
    monkeypatch.setattr(Cluster.batch, "delete_namespaced_job", "delete", raising=False)
    cluster = Runs(driver, training)
    assert stop(cast(Kube, cluster), "run-1") == len(ended)
    assert cluster.deleted == ended


@pytest.mark.parametrize(("code", "stage"), [(1, "failed"), (3, "rejected")])
def test_a_run_that_the_gate_rejected_did_not_fail(code: int, stage: str) -> None:
    found = known(cast(Kube, Runs("Failed", "Succeeded", code)), 1_800_000_000.0)
    assert {one.name: one.stage for one in found} == {"run-1": stage, "teacher-1": "succeeded"}
