"""Whether a job's owner still needs it."""

from typing import Any, cast

import pytest

from understudy.kube.api import Kube
from understudy.kube.owner_state import why_ended

CREATED = "2026-01-01T00:00:00Z"
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
        ({"metadata": {"uid": "uid-of-another"}}, "Job run-1 no longer exists"),
        (None, "Job run-1 no longer exists"),
    ],
)
def test_a_jobs_owner_needs_it_until_the_owner_ends(change: dict[str, Any] | None, why: str) -> None:
    job = None if change is None else {"metadata": {"uid": "uid-driver"}, "spec": {}, **change}

    class Answering:
        namespace = "here"
        batch = type("Batch", (), {"read_namespaced_job": None})

        def call(self, method: object, *arguments: object, **options: object) -> Any:
            del method, arguments, options
            return job

    cluster = cast(Kube, Answering())
    assert why_ended(cluster, OWNER) == why
    assert why_ended(cluster, {**OWNER, "kind": "ReplicaSet"}) == "", "that starts another pod"


WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "digits-x", "uid": "uid-flow"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": {"phase": "Running"}}, ""),
        ({"spec": {"activeDeadlineSeconds": 0}}, "Workflow digits-x was terminated"),  # as KFP terminates a run
        ({"status": {"phase": "Succeeded"}}, "Workflow digits-x has ended"),
        ({"status": {"phase": "Error"}}, "Workflow digits-x has ended"),
        (None, "Workflow digits-x no longer exists"),
    ],
)
def test_a_run_of_kfp_needs_its_jobs_until_its_workflow_ends(change: dict[str, Any] | None, why: str) -> None:
    calls: list[object] = []

    class Answering:
        namespace = "here"
        custom = type("Custom", (), {"get_namespaced_custom_object": "get"})

        def call(self, method: object, *arguments: object, **options: object) -> Any:
            calls.extend([method, *arguments])
            return None if change is None else {"metadata": {"uid": "uid-flow"}, "spec": {}, **change}

    assert why_ended(cast(Kube, Answering()), WORKFLOW) == why
    assert calls == ["get", "argoproj.io", "v1alpha1", "here", "workflows", "digits-x"]
