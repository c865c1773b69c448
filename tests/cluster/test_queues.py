"""Jobs under Kueue: they wait for quota and say so, and make room for a higher priority and go on."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.launched import EVERY, NAMESPACE, SIGN, Launcher, kubectl, recipe, wait, waits_for_a_sign
from tests.cluster.volume import Volume
from understudy.kube.kind import PYTORCHJOB

pytestmark = pytest.mark.cluster
Launch = Callable[..., Launcher]
NO_QUOTA = "queued: Kueue: .*insufficient unused quota"


def asking(priority: str = "low", **changes: Any) -> dict[str, Any]:
    return recipe(cpu="500m", priority=f"{NAMESPACE}-{priority}", **changes)


def test_a_job_beyond_the_quota_is_queued_and_then_admitted(launch: Launch, queue: dict[str, Any]) -> None:
    first = launch(asking(train={"steps": 8000}), queue)
    first.reaches(5)
    second = launch(asking(train={"steps": 20}), queue)
    second.says(NO_QUOTA)
    assert not second.workers()
    forget_why_it_waits(second)
    kubectl("delete", "pod", second.pods()[0]["metadata"]["name"])
    second.says(f"watching the job .*\n(?:.*\n)*?.*{NO_QUOTA}")
    kubectl("delete", "job", first.name)
    assert second.ends() == 0, second.output()


def forget_why_it_waits(launcher: Launcher) -> None:
    """What Kueue leaves of its reason when the workload changes while it writes the reason down: an event alone."""
    assert launcher.job
    workload = launcher.kube.workload_of(launcher.kube.job(PYTORCHJOB, launcher.job) or {})
    assert workload
    name = workload["metadata"]["name"]
    # Merged, for Kueue itself may have left no conditions, and a missing list cannot be replaced.
    nothing = json.dumps({"status": {"conditions": None}})
    kubectl("patch", "workload", name, "--subresource=status", "--type=merge", "-p", nothing)


def test_a_preempted_job_takes_a_checkpoint_and_goes_on_where_it_was(
    launch: Launch, queue: dict[str, Any], volume: Volume
) -> None:
    low = launch(asking(train={"steps": 500}), queue)
    high = launch(asking("high", train={"steps": 20}), queue, waits_for_a_sign)
    wait(lambda: any(pod["status"]["phase"] == "Running" for pod in high.pods()))
    low.reaches(25)
    volume.sh(f"touch {SIGN}")
    low.says("queued: Kueue: .*[Pp]reempted")
    before = max(point["step"] for point in low.points())
    assert high.ends() == 0, high.output()
    low.reaches(before + EVERY)
    steps = [point["step"] for point in low.points()]
    assert steps.count(before) == 1, "it left at a checkpoint, and nothing was done twice"


@pytest.mark.full
def test_a_job_that_no_quota_could_ever_admit_fails(launch: Launch, queue: dict[str, Any]) -> None:
    launcher = launch(recipe(cpu="4", pool="gpu"), queue)
    assert launcher.ends() == 1
    assert "the queue can never admit this job" in launcher.output()


@pytest.mark.full
def test_a_queue_that_does_not_exist_fails_the_job(launch: Launch) -> None:
    launcher = launch(recipe(queue="nowhere"))
    launcher.says("queued: .*nowhere")
    assert not launcher.workers()
    assert launcher.ends() == 1
    launcher.says("the queue can never admit this job. Kueue: LocalQueue nowhere doesn't exist", 20)


@pytest.mark.full
def test_an_elastic_job_beyond_all_quota_goes_on_with_fewer_nodes(launch: Launch, queue: dict[str, Any]) -> None:
    launcher = launch(recipe(cpu="800m", min_nodes=1, train={"steps": 20}), queue)
    launcher.says("asking for 1 of 2 nodes: .*insufficient quota", 120)
    assert launcher.ends() == 0, launcher.output()


@pytest.mark.full
def test_a_preempted_elastic_job_continues_on_the_remaining_nodes(
    launch: Launch, queue: dict[str, Any], volume: Volume
) -> None:
    low = launch(asking(min_nodes=1, train={"steps": 500}), queue)
    high = launch(asking("high", nodes=1, train={"steps": 8000}), queue, waits_for_a_sign)
    wait(lambda: any(pod["status"]["phase"] == "Running" for pod in high.pods()))
    low.reaches(25)
    volume.sh(f"touch {SIGN}")
    low.says("queued: Kueue: .*[Pp]reempted")
    before = max(point["step"] for point in low.points())
    low.says("asking for 1 of 2 nodes", 120)
    assert low.ends() == 0, low.output()
    assert high.ended() is None, "they ran beside each other"
    steps = [point["step"] for point in low.points()]
    assert steps.count(before) == 1, "it left at a checkpoint, and nothing was done twice"
