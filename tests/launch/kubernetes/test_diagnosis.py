from pathlib import Path
from typing import Any, Literal, cast

import pytest

from tests.jobs.specs import with_resources
from understudy.jobs import attempts
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes.api import Kube, Refused
from understudy.launch.kubernetes.diagnosis import HOPE, UNMOUNTED, Trouble, is_scaling
from understudy.launch.kubernetes.settings import HOST, REQUIRED
from understudy.launch.kubernetes.status import Sight
from understudy.recipe import Resources

GPU = "nvidia.com/gpu"
JOB = {"metadata": {"name": "job", "uid": "0"}}


class Nodes:
    """Two nodes of a pool, with 4 and with 8 GPUs, of which the first has the run's own pod."""

    def nodes(self) -> list[dict[str, Any]]:
        if not self.may_list_nodes:
            raise Refused("may not list nodes")
        return [node("small", "4"), node("large", "8")]

    may_list_nodes = True

    def pods(self, selector: str) -> list[dict[str, Any]]:
        assert selector == "understudy.store=store"
        return [{"spec": {"nodeName": "small"}, "status": {"phase": "Running"}}]

    def events(self, thing: dict[str, Any]) -> list[dict[str, Any]]:
        del thing
        return []


def node(name: str, gpus: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {}}, "status": {"allocatable": {GPU: gpus}}}


def pod(gpus: str, one_node: bool) -> dict[str, Any]:
    rule = {"labelSelector": {"matchLabels": {"understudy.store": "store"}}, "topologyKey": HOST}
    affinity = {"podAffinity": {REQUIRED: [rule]}} if one_node else {}
    containers = [{"resources": {"requests": {GPU: gpus}}}]
    meta = {"name": "rank", "uid": "1"}
    return {"metadata": meta, "spec": {"affinity": affinity, "containers": containers}, "status": {}}


@pytest.mark.parametrize(
    ("gpus", "one_node", "hopeless"), [("8", False, False), ("8", True, True), ("4", True, False), ("16", False, True)]
)
def test_where_one_node_has_the_store_only_that_node_counts(
    job: JobSpec, gpus: str, one_node: bool, hopeless: bool
) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    trouble = Trouble(job, Resources(), 0.0, cast(Kube, Nodes()), print)
    outcome = trouble.found(JOB, Sight("pending"), [pod(gpus, one_node)], waited=HOPE)
    assert (outcome is not None) == hopeless
    if outcome:
        assert f"a pod asks for {gpus} {GPU}, and the largest node of its kind has" in outcome.message


def test_rules_of_the_users_own_are_no_reason_to_give_up(job: JobSpec) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    pending = pod("8", one_node=False)
    theirs = [{"topologyKey": "zone"}, {"labelSelector": {"matchExpressions": []}, "topologyKey": HOST}]
    pending["spec"]["affinity"] = {"podAffinity": {REQUIRED: theirs}}
    trouble = Trouble(job, Resources(), 0.0, cast(Kube, Nodes()), print)
    assert trouble.found(JOB, Sight("pending"), [pending], waited=HOPE) is None


def test_what_cannot_be_known_is_told_once(job: JobSpec) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    blind = Nodes()
    blind.may_list_nodes = False
    trouble = Trouble(job, Resources(), 0.0, cast(Kube, blind), said.append)
    for _ in range(3):
        assert trouble.found(JOB, Sight("pending"), [pod("8", one_node=False)], waited=HOPE) is None
    assert len(said) == 1
    assert "this account may not list nodes" in said[0]


TOO_SMALL = "insufficient quota for {} in flavor {}, request > maximum capacity (32 > 16)"  # as Kueue says it
IN_USE = "insufficient unused quota for {} in flavor {}, 8 more needed"


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
def test_what_a_queue_can_never_admit_is_told_from_what_has_to_wait(job: JobSpec, detail: str, never: bool) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    trouble = Trouble(job, Resources(), 0.0, cast(Kube, Nodes()), print)
    outcome = trouble.found(JOB, Sight("queued", detail), [], waited=HOPE)
    assert (outcome is not None) == never
    if outcome:
        assert outcome.message == f"the queue can never admit this job. {detail}"


@pytest.mark.parametrize("reason", ["TriggeredScaleUp", "Nominated"])  # the cluster autoscaler's, and Karpenter's
def test_a_pod_that_an_autoscaler_makes_a_node_for_is_waited_for(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    trouble = Trouble(job, Resources(), 0.0, cast(Kube, Nodes()), print)
    assert trouble.found(JOB, Sight("pending"), [pod("16", one_node=False)], waited=HOPE) is not None
    monkeypatch.setattr(Nodes, "events", lambda *_: [{"reason": reason}])
    assert trouble.found(JOB, Sight("pending"), [pod("16", one_node=False)], waited=HOPE) is None
    monkeypatch.setattr(Nodes, "events", lambda *_: [])
    assert trouble.found(JOB, Sight("pending"), [pod("16", one_node=False)], waited=HOPE) is None, "it was there"


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ("NotTriggerScaleUp: pod didn't trigger scale-up: 1 in backoff after failed scale-up", True),
        ("NotTriggerScaleUp: pod didn't trigger scale-up: max cluster cpu limit reached", True),
        ("NotTriggerScaleUp: pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu", False),
        ("NotTriggerScaleUp: pod didn't trigger scale-up: 1 Insufficient cpu, 2 max node group size reached", False),
        ("FailedScaleUp: Node scale up failed: GCE out of resources.", True),
    ],
)
def test_a_cloud_that_has_no_nodes_now_is_told_from_a_request_that_fits_none(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch, said: str, waits: bool
) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(
        Nodes, "events", lambda *_: [dict(zip(("reason", "message"), said.split(": ", 1), strict=True))]
    )
    trouble = Trouble(job, Resources(), 0.0, cast(Kube, Nodes()), print)
    assert (trouble.found(JOB, Sight("pending"), [pod("16", one_node=False)], waited=HOPE) is None) == waits
    assert not is_scaling(cast(Kube, Nodes()), [pod("16", one_node=False)]), "a job that may be smaller gets smaller"


def test_of_what_an_autoscaler_said_the_newest_counts(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    trouble = Trouble(job, Resources(), 0.0, cast(Kube, Nodes()), print)
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(Nodes, "events", lambda *_: said)
    for reason, waits in (("1 in backoff after failed scale-up", True), ("1 Insufficient nvidia.com/gpu", False)):
        said.append({"reason": "NotTriggerScaleUp", "message": reason})
        assert (trouble.found(JOB, Sight("pending"), [pod("16", one_node=False)], waited=HOPE) is None) == waits


@pytest.mark.parametrize(("nodes", "waits"), [([], True), ([("new", "0")], True), ([("large", "8")], False)])
def test_a_kind_that_has_all_its_nodes_is_waited_for_until_they_are_there(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch, nodes: list[tuple[str, str]], waits: bool
) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    said = {"reason": "NotTriggerScaleUp", "message": "pod didn't trigger scale-up: 1 max node group size reached"}
    monkeypatch.setattr(Nodes, "events", lambda *_: [said])
    monkeypatch.setattr(Nodes, "nodes", lambda *_: [node(name, gpus) for name, gpus in nodes])
    trouble = Trouble(job, Resources(), 0.0, cast(Kube, Nodes()), print)
    assert (trouble.found(JOB, Sight("pending"), [pod("16", one_node=False)], waited=HOPE) is None) == waits


def worker(number: int, phase: str) -> dict[str, Any]:
    return {"metadata": {"name": f"job-worker-{number}", "uid": str(number)}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("least", "minutes", "waited", "detail", "broken"),
    [
        (3, 1, HOPE - 1, "", False),
        (3, 1, HOPE, "job-worker-2 does not start yet: secret extra not found", False),
        (3, 10, HOPE, "job-worker-2 did not start for 10 minutes: secret extra not found", True),
        (2, 10, HOPE, "job-worker-2 does not start yet: secret extra not found", False),
    ],
    ids=["may still come", "late", "too late", "the job goes on with two"],
)
def test_volumes_that_do_not_come_are_told_and_after_ten_minutes_the_job_ends_if_it_needs_the_pod(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch, least: int, minutes: int, waited: float, detail: str, broken: bool
) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)

    def events(_: object, thing: dict[str, Any]) -> list[dict[str, Any]]:
        times = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": f"2026-01-01T00:{minutes:02}:00Z"}
        failed = {"reason": "FailedMount", "message": "secret extra not found", **times}
        return [failed] if thing["metadata"]["name"] == "job-worker-2" else []

    monkeypatch.setattr(Nodes, "events", events)
    trouble = Trouble(with_resources(job, nodes=3, min_nodes=least), Resources(), 0.0, cast(Kube, Nodes()), print)
    pods = [worker(0, "Running"), worker(1, "Running"), worker(2, "Pending")]
    sight = trouble.explained(Sight("pulling"), pods, waited)
    assert sight == Sight("pulling", detail, broken=detail if broken else "")
    outcome = trouble.found(JOB, sight, pods, waited)
    assert (outcome.message if outcome else "") == sight.broken


def test_a_job_that_did_without_a_pod_may_restart_without_it(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    clock = [0.0]
    monkeypatch.setattr("understudy.launch.kubernetes.diagnosis.time.monotonic", lambda: clock[0])
    times = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T01:00:00Z"}
    monkeypatch.setattr(Nodes, "events", lambda *_: [{"reason": "FailedMount", "message": "no", **times}])
    trouble = Trouble(with_resources(job, nodes=3, min_nodes=2), Resources(), 0.0, cast(Kube, Nodes()), print)

    def is_given_up(*phases: str) -> bool:
        pods = [worker(number, phase) for number, phase in enumerate(phases)]
        return bool(trouble.explained(Sight("pulling"), pods, 3600.0).broken)

    assert not is_given_up("Running", "Pending", "Running")
    clock[0] += 60
    assert not is_given_up("Running", "Pending", "Pending"), "its third pod is about to start again"
    clock[0] += UNMOUNTED
    assert is_given_up("Running", "Pending", "Pending")


def test_killed_ranks_are_forgiven_as_often_as_the_recipe_says_and_lost_ones_always(job: JobSpec) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    trouble = Trouble(job, Resources(max_restarts=2), 100.0, cast(Kube, Nodes()), said.append)

    def verdict_after(kind: Literal["killed", "lost"], at: float) -> str | None:
        Outcome(1, f"{kind} at {at:g}", kind, at=at).write(job.outcome(0))
        attempts.keep_failures(job)
        outcome = trouble.found(JOB, Sight("running"), [], waited=0.0)
        return outcome.message if outcome else None

    assert verdict_after("killed", 99.0) is None, "that was an earlier run"
    assert said == []
    assert [verdict_after("killed", 101.0), verdict_after("killed", 102.0)] == [None, None]
    assert [verdict_after("lost", 103.0 + n) for n in range(5)] == [None] * 5
    assert said[:2] == [f"restarting at the last checkpoint: killed at {at}" for at in (101, 102)]
    words = "ranks were killed 3 times, resources.teacher.max_restarts allows 2; the last: killed at 110"
    assert verdict_after("killed", 110.0) == words


def test_a_priority_that_is_not_there_names_the_key(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    refusal = {"reason": "FailedCreatePod", "message": "no PriorityClass with name nope was found"}
    monkeypatch.setattr(Nodes, "events", lambda *_: [refusal])
    trouble = Trouble(job, Resources(), 0.0, cast(Kube, Nodes()), print)
    outcome = trouble.found(JOB, Sight("pending"), [], waited=HOPE)
    assert outcome is not None
    assert outcome.message.endswith("nope was found; correct resources.teacher.priority")
