"""Starts of a job that makes no progress."""

from typing import Any

import pytest

from tests.unit.launch.kubernetes.statuses import job_of, status_of
from understudy.jobs.heartbeat import Heartbeat
from understudy.jobs.specification import JobSpec
from understudy.kube.job_state import JobState, Stage
from understudy.launch.kubernetes.starts import Starts

DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.fixture
def observe(job: JobSpec) -> Any:
    """Starts after a job was seen with pods of these uids at a step."""

    def after(
        starts: Starts, *uids: str, step: int = -1, stage: Stage = "running", job_uid: str = "0", **pod: Any
    ) -> Starts:
        pods = tuple({"metadata": {"name": uid, "uid": uid}, **pod} for uid in uids)
        beats = {0: Heartbeat(0, "", "training", step, "node", 0.0)}
        job_object = {"metadata": {"name": "job", "uid": job_uid}}
        return starts.after(status_of(job_of(job), JobState(stage), pods=pods, heartbeats=beats, watched=job_object))

    return after


def test_a_start_is_counted_once_when_all_pods_are_new(observe: Any) -> None:
    first = observe(Starts(), "a", "b")
    assert first.count == 1
    assert observe(first, "a", "b").count == 1
    assert observe(first, "a", "c").count == 1
    assert observe(first, "c", "d").count == 2


def test_a_further_step_begins_the_count_anew(observe: Any) -> None:
    starts = observe(observe(Starts(), "a", step=3), "b", step=3)
    assert (starts.count, starts.best) == (2, 3)
    assert observe(starts, "b", step=4).count == 0
    assert observe(starts, "c", step=4).count == 1


def test_a_job_that_ended_before_its_pods_were_seen_was_started_too(observe: Any) -> None:
    starts = Starts()
    for uid in ("1", "1", "2"):
        starts = observe(starts, stage="failed", job_uid=uid)
    assert starts.count == 2
    assert observe(observe(Starts(), "a", job_uid="1"), stage="failed", job_uid="1").count == 1, (
        "that start was counted"
    )


def test_a_new_job_that_begins_in_its_queue_forgives_nothing(observe: Any) -> None:
    starts = Starts()
    for number in range(3):
        starts = observe(starts, stage="queued", job_uid=str(number))
        starts = observe(starts, f"pod-{number}", job_uid=str(number))
    assert starts.count == 3


def test_pods_that_had_to_go_are_not_counted(observe: Any) -> None:
    starts = Starts(count=10, job="0")
    assert observe(starts, stage="queued", job_uid="0").count == 0
    assert observe(starts, "a", status=DISRUPTED).count == 1
