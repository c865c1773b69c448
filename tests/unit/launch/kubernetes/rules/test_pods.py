"""Pods that do not start."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.jobs.specs import with_resources
from tests.unit.launch.kubernetes.statuses import job_of, status_of, waiting
from understudy.jobs.specification import JobSpec
from understudy.kube.job_state import JobState
from understudy.kube.timeouts import UNMOUNTED
from understudy.launch.kubernetes.decisions import Finish, Wait
from understudy.launch.kubernetes.diagnosis import decide
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.rules.pods import volume_missing
from understudy.launch.kubernetes.status import JobStatus

PULLING = JobState("pulling", "1 of 3 pods are getting their image or volumes")


def worker(number: int, phase: str) -> dict[str, Any]:
    return {"metadata": {"name": f"job-worker-{number}", "uid": str(number)}, "status": {"phase": phase}}


def unmounted(job: JobSpec, least: int, minutes: int, *phases: str, at: float = 0.0) -> JobStatus:
    """A job of three nodes whose pods are in some phase, and one has lacked its volumes for so long."""
    times = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": f"2026-01-01T00:{minutes:02}:00Z"}
    events = ({"reason": "FailedMount", "message": "secret extra not found", **times},)
    pods = tuple(worker(number, phase) for number, phase in enumerate(phases))
    return status_of(job_of(with_resources(job, nodes=3, min_nodes=least)), PULLING, pods=pods, events=events, at=at)


@pytest.mark.parametrize(
    ("least", "minutes", "message"),
    [
        (3, 1, "pulling: job-worker-2 does not start yet: secret extra not found"),
        (3, 10, "job-worker-2 did not start for 10 minutes: secret extra not found"),
        (2, 10, "pulling: job-worker-2 does not start yet: secret extra not found"),
    ],
    ids=["late", "too late", "the job goes on with two"],
)
def test_missing_volumes_are_reported_and_after_ten_minutes_the_job_ends_if_it_needs_the_pod(
    job: JobSpec, least: int, minutes: int, message: str
) -> None:
    status = unmounted(job, least, minutes, "Running", "Running", "Pending")
    decision = volume_missing(status, waiting(status))
    assert decision is not None
    assert (decision.outcome.message if isinstance(decision, Finish) else decision.messages[0]) == message


def test_volumes_that_may_still_come_are_waited_for(job: JobSpec) -> None:
    status = replace(unmounted(job, 3, 1, "Running", "Running", "Pending"), events=())
    assert decide(status, waiting(status)) == Wait(f"pulling: {PULLING.detail}")


def test_a_job_that_did_without_a_pod_may_restart_without_it(job: JobSpec) -> None:
    history = History("job").after(unmounted(job, 2, 59, "Running", "Pending", "Running"))

    def has_finished(at: float, *phases: str) -> bool:
        return isinstance(volume_missing(unmounted(job, 2, 59, *phases, at=at), history), Finish)

    assert not has_finished(0.0, "Running", "Pending", "Running")
    assert not has_finished(60.0, "Running", "Pending", "Pending"), "its third pod is about to start again"
    assert has_finished(60.0 + UNMOUNTED, "Running", "Pending", "Pending")


def test_a_broken_pod_has_a_minute_to_recover(job: JobSpec) -> None:
    broken = "image i:1 cannot be pulled"
    status = status_of(job_of(job), JobState("pulling", broken, broken=broken), pods=(worker(0, "Pending"),))
    assert decide(status, waiting(status, 59)) == Wait(f"pulling: {broken}")
    decision = decide(status, waiting(status))
    assert isinstance(decision, Finish)
    assert decision.outcome.message == broken
