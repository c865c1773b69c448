"""Requests that a cluster has no room for, now or ever."""

from typing import Any

import pytest

from tests.unit.launch.kubernetes.statuses import job_of, status_of, waiting
from understudy.jobs.specification import JobSpec
from understudy.kube.job_state import JobState
from understudy.kube.scheduling import is_scaling
from understudy.launch.kubernetes.decisions import Finish, Wait
from understudy.launch.kubernetes.diagnosis import decide
from understudy.launch.kubernetes.rules.capacity import node_never_fits, pods_refused, queue_never_admits
from understudy.launch.kubernetes.status import JobStatus

GPU = "nvidia.com/gpu"
TOO_SMALL = "insufficient quota for {} in flavor {}, request > maximum capacity (32 > 16)"  # as Kueue says it
IN_USE = "insufficient unused quota for {} in flavor {}, 8 more needed"


def node(name: str, gpus: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {}}, "status": {"allocatable": {GPU: gpus}}}


def pod(gpus: str) -> dict[str, Any]:
    containers = [{"resources": {"requests": {GPU: gpus}}}]
    return {"metadata": {"name": "rank", "uid": "1"}, "spec": {"containers": containers}, "status": {}}


NODES = (node("small", "4"), node("large", "8"))


def pending(job: JobSpec, gpus: str = "16", nodes: Any = NODES, *events: dict[str, Any]) -> JobStatus:
    state = JobState("pending", "no node fits rank")
    return status_of(job_of(job), state, pods=(pod(gpus),), nodes=nodes, events=events)


@pytest.mark.parametrize(
    ("detail", "never"),
    [
        ("couldn't assign flavors to pod set: request > maximum capacity (8)", True),
        ("Workload namespace doesn't match ClusterQueue selector", True),
        ("Kueue: LocalQueue nowhere doesn't exist", True),
        ("Kueue: ClusterQueue gpus doesn't exist", True),
        ("Kueue: ClusterQueue gpus is inactive", False),
        ("couldn't assign flavors to pod set: insufficient unused quota", False),
        (f"{TOO_SMALL.format('cpu', 'default')}, {IN_USE.format('cpu', 'gpu')}", False),
        (f"{TOO_SMALL.format('cpu', 'gpu')}, {IN_USE.format('memory', 'gpu')}", True),
        (f"untolerated taint spot in flavor spot, {TOO_SMALL.format('cpu', 'gpu')}", True),
    ],
)
def test_a_request_above_a_queues_quota_is_distinguished_from_one_that_waits(
    job: JobSpec, detail: str, never: bool
) -> None:
    status = status_of(job_of(job), JobState("queued", detail))
    decision = queue_never_admits(status, waiting(status))
    assert isinstance(decision, Finish) == never
    if isinstance(decision, Finish):
        assert decision.outcome.message == f"the queue can never admit this job. {detail}"
    assert queue_never_admits(status, waiting(status, 59)) is None


@pytest.mark.parametrize(("gpus", "never"), [("8", False), ("16", True)])
def test_a_pod_that_is_larger_than_any_node_would_wait_for_ever(job: JobSpec, gpus: str, never: bool) -> None:
    status = pending(job, gpus)
    decision = node_never_fits(status, waiting(status))
    assert isinstance(decision, Finish) == never
    if isinstance(decision, Finish):
        assert f"a pod asks for {gpus} {GPU}, and the largest node of its kind has" in decision.outcome.message


def test_unknown_capacity_is_reported(job: JobSpec) -> None:
    status = pending(job, "8", None)
    decision = node_never_fits(status, waiting(status))
    assert isinstance(decision, Wait)
    assert "this account may not list nodes" in decision.reason


@pytest.mark.parametrize("reason", ["TriggeredScaleUp", "Nominated"])  # the cluster autoscaler's, and Karpenter's
def test_a_pod_that_an_autoscaler_makes_a_node_for_is_waited_for(job: JobSpec, reason: str) -> None:
    before, scaling = pending(job), pending(job, "16", NODES, {"reason": reason})
    assert node_never_fits(before, waiting(before))
    history = waiting(scaling)
    assert node_never_fits(scaling, history) is None
    assert node_never_fits(before, history) is None, "the event was there, and was forgotten since"


@pytest.mark.parametrize(
    ("reason", "message", "waits"),
    [
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 in backoff after failed scale-up", True),
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: max cluster cpu limit reached", True),
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu", False),
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 Insufficient cpu, 2 max node group size reached", False),
        ("FailedScaleUp", "Node scale up failed: GCE out of resources.", True),
    ],
)
def test_a_cloud_without_free_nodes_is_distinguished_from_a_request_that_fits_none(
    job: JobSpec, reason: str, message: str, waits: bool
) -> None:
    status = pending(job, "16", NODES, {"reason": reason, "message": message})
    assert (node_never_fits(status, waiting(status)) is None) == waits
    assert not is_scaling(status.events), "a job that may be smaller gets smaller"


def test_the_newest_event_of_an_autoscaler_counts(job: JobSpec) -> None:
    first = {"reason": "NotTriggerScaleUp", "message": "1 in backoff after failed scale-up"}
    then = {"reason": "NotTriggerScaleUp", "message": "1 Insufficient nvidia.com/gpu"}
    for message, waits in (((first,), True), ((first, then), False)):
        status = pending(job, "16", NODES, *message)
        assert (node_never_fits(status, waiting(status)) is None) == waits


@pytest.mark.parametrize(("nodes", "waits"), [([], True), ([("new", "0")], True), ([("large", "8")], False)])
def test_a_kind_that_has_all_its_nodes_is_waited_for_until_they_are_there(
    job: JobSpec, nodes: list[tuple[str, str]], waits: bool
) -> None:
    message = {"reason": "NotTriggerScaleUp", "message": "pod didn't trigger scale-up: 1 max node group size reached"}
    status = pending(job, "16", tuple(node(name, gpus) for name, gpus in nodes), message)
    assert (node_never_fits(status, waiting(status)) is None) == waits


def test_a_priority_that_is_not_there_names_the_key(job: JobSpec) -> None:
    refusal = {"reason": "FailedCreatePod", "message": "no PriorityClass with name nope was found"}
    status = status_of(job_of(job), JobState("pending"), events=(refusal,))
    decision = pods_refused(status, waiting(status))
    assert isinstance(decision, Finish)
    assert decision.outcome.message.endswith("nope was found; correct resources.teacher.priority")


def test_a_job_without_pods_that_nobody_refused_asks_for_its_operator(job: JobSpec) -> None:
    status = status_of(job_of(job), JobState("pending", "waiting for the training operator to make its pods"))
    assert decide(status, waiting(status, 59)) == Wait("pending: waiting for the training operator to make its pods")
    assert decide(status, waiting(status)) == Wait("pending: still no pods; is the training operator running?")
