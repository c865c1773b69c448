from typing import Any

import pytest

from understudy.kube.job_state import state_of
from understudy.kube.kind import TRAINJOB


def job(suspend: bool = False, **conditions: str) -> dict[str, Any]:
    entries = [{"type": kind, "status": "True", "message": message} for kind, message in conditions.items()]
    return {"metadata": {"uid": "1"}, "spec": {"runPolicy": {"suspend": suspend}}, "status": {"conditions": entries}}


def pod(name: str = "a", phase: str = "Running", node: str = "n", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase, **status}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"image": "i:1", "state": {"waiting": {"reason": reason, "message": message}}}
    return pod(phase="Pending", containerStatuses=[state])


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
WORKLOAD = {
    "spec": {"queueName": "q"},
    "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": "insufficient quota"}]},
}


@pytest.mark.parametrize(
    ("existing", "pods", "workload", "stage", "detail"),
    [
        (None, [], None, "gone", "no longer exists"),
        (job(Failed="it failed"), [], None, "failed", "it failed"),
        (job(Succeeded="it went well"), [pod()], None, "succeeded", "it went well"),
        (job(suspend=True), [], None, "queued", "Kueue has not seen it"),
        (job(suspend=True), [], WORKLOAD, "queued", "insufficient quota"),
        (job(), [], None, "pending", "training operator"),
        (job(), [pod(phase="Pending", conditions=[UNSCHEDULABLE])], None, "pending", "0/3 nodes"),
        (job(), [waiting("ImagePullBackOff", "not found")], None, "pulling", "image i:1 cannot be pulled: not found"),
        (job(), [waiting("CreateContainerConfigError", "no secret")], None, "pending", "a cannot start: no secret"),
        (job(), [pod(), pod("b", phase="Pending")], None, "pulling", "1 of 2 pods"),
        (job(), [pod(node="x"), pod("b", node="y")], None, "running", "on x, y"),
        (job(), [pod(phase="Failed"), pod("b", phase="Succeeded")], None, "ending", "all pods have ended"),
        (job(), [pod(phase="Failed"), pod("b")], None, "running", "on n"),
    ],
)
def test_the_state_of_a_job(existing: Any, pods: Any, workload: Any, stage: str, detail: str) -> None:
    state = state_of(existing, pods, workload)
    assert state.stage == stage
    assert detail in state.detail


def test_a_job_that_is_being_deleted_counts_as_deleted() -> None:
    deleted = job()
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    assert state_of(deleted, [pod()]).stage == "gone"


def test_an_image_that_cannot_be_pulled_will_not_mend_by_itself() -> None:
    assert state_of(job(), [waiting("ErrImagePull")]).broken


def test_a_job_with_pods_on_a_dead_node_gives_them_up() -> None:
    state = state_of(job(), [pod(node="x"), pod("b", node="y")], dead=("b",))
    assert (state.stage, state.detail, state.dead) == (
        "restarting",
        "node y does not answer; its pods are force-deleted",
        ("b",),
    )


def test_a_trainjob_stands_where_its_own_conditions_say() -> None:
    suspended = {"metadata": {"uid": "1"}, "spec": {"suspend": True}, "status": {"conditions": []}}
    assert state_of(suspended, [], WORKLOAD, kind=TRAINJOB).stage == "queued"
    assert state_of(job(Complete="all went well"), [], kind=TRAINJOB).stage == "succeeded"
    assert state_of(job(Failed="jobset failed"), [], kind=TRAINJOB).stage == "failed"
