"""Many runs at once: they share the queue's quota, and common steps are trained once."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.launched import Launcher, kubectl, recipe, wait
from understudy.kube.kind import PYTORCHJOB

pytestmark = pytest.mark.cluster
Launch = Callable[..., Launcher]
OURS = "app.kubernetes.io/name=understudy,understudy.run"
RUNS, AT_ONCE = 10, 2


@pytest.mark.full
def test_ten_runs_with_a_quota_for_two_jobs_all_end_well(launch: Launch, queue: dict[str, Any]) -> None:
    train = {"steps": 60, "strategy": "single"}
    runs = [launch(recipe(seed=seed, cpu="500m", nodes=1, train=train), queue) for seed in range(RUNS)]
    kube, at_once = runs[0].kube, [0]

    def all_ended() -> bool:
        trainings = kube.jobs(PYTORCHJOB, OURS)
        at_once.append(sum(goes_on(job) and not job["spec"]["runPolicy"]["suspend"] for job in trainings))
        drivers = kube.call(kube.batch.list_namespaced_job, kube.namespace, label_selector=OURS)["items"]
        return not any(goes_on(job) for job in drivers)

    wait(all_ended, 900)
    assert [run.ended() for run in runs] == [0] * RUNS, "\n".join(run.output() for run in runs if run.ended())
    assert max(at_once) == AT_ONCE
    assert len({run.digest() for run in runs}) == RUNS


def goes_on(job: dict[str, Any]) -> bool:
    ended = {c["type"] for c in job.get("status", {}).get("conditions", ()) if c["status"] == "True"}
    return not ended & {"Succeeded", "Failed", "Complete"}


def test_two_runs_that_share_a_teacher_train_it_once(launch: Launch) -> None:
    first, second = launch(), launch()
    names: set[str] = set()

    def both_ended() -> bool:
        names.update(filter(None, (first.job, second.job)))
        return first.ended() is not None and second.ended() is not None

    wait(both_ended)
    assert [first.ended(), second.ended()] == [0, 0], first.output() + second.output()
    assert len(names) == 1
    assert first.digest() == second.digest()
    assert kubectl("get", "pytorchjobs", "-o", "name").count("teacher-") == 1
