"""Jobs under Kueue: they wait for quota and say so, and make room for a higher priority and go on."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from launched import NAMESPACE, Launcher, kubectl, recipe, wait

pytestmark = pytest.mark.cluster
Launch = Callable[..., Launcher]
QUEUE = "tests"


def thing(version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}


@pytest.fixture(scope="module")
def queue(kube: Any) -> Iterator[dict[str, Any]]:
    """Settings with a queue whose quota is for one job of two nodes."""
    kueue, scheduling = "kueue.x-k8s.io/v1beta1", "scheduling.k8s.io/v1"
    quota = {"name": NAMESPACE, "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    spec = {
        "namespaceSelector": here,
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
    }
    made = [
        thing(kueue, "ResourceFlavor", NAMESPACE),
        thing(kueue, "ClusterQueue", NAMESPACE, spec=spec),
        thing(kueue, "LocalQueue", QUEUE, spec={"clusterQueue": NAMESPACE}),
        thing(scheduling, "PriorityClass", f"{NAMESPACE}-low", value=1),
        thing(scheduling, "PriorityClass", f"{NAMESPACE}-high", value=100),
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    kubectl("apply", "--server-side", "-f", "-", text=text)
    yield {"queue": QUEUE}
    kubectl("delete", "-f", "-", "--wait=false", text=text)


def asking(priority: str = "low", **changes: Any) -> dict[str, Any]:
    return recipe(cpu="500m", priority=f"{NAMESPACE}-{priority}", **changes)


def test_a_job_beyond_the_quota_is_queued_and_then_admitted(launch: Launch, queue: dict[str, Any]) -> None:
    first = launch(asking(train={"steps": 150}), queue)
    first.reaches(5)
    second = launch(asking(train={"steps": 20}), queue)
    second.says("queued: Kueue: .*insufficient unused quota", 90)
    assert not second.workers()
    assert [first.ends(), second.ends()] == [0, 0], first.said() + second.said()


def test_a_preempted_job_takes_a_checkpoint_and_goes_on_where_it_was(launch: Launch, queue: dict[str, Any]) -> None:
    low = launch(asking(train={"steps": 300}), queue)
    low.reaches(25)
    high = launch(asking("high", train={"steps": 20}), queue)
    low.says("queued: Kueue: .*[Pp]reempted", 90)
    before = max(point["step"] for point in low.points())
    assert high.ends() == 0, high.said()
    assert low.ends() == 0, low.said()
    steps = [point["step"] for point in low.points()]
    assert steps.count(before) == 1, "it left at a checkpoint, and nothing was done twice"


def test_a_job_that_no_quota_could_ever_admit_fails(launch: Launch, queue: dict[str, Any]) -> None:
    launcher = launch(recipe(cpu="4", pool="gpu"), queue)
    assert launcher.ends() == 1
    assert "the queue can never admit this job" in launcher.said()


def test_a_queue_that_does_not_exist_is_named(launch: Launch) -> None:
    launcher = launch(recipe(queue="nowhere"))
    launcher.says("queued: .*nowhere", 90)
    wait(lambda: not launcher.workers(), 5)
