"""A launcher that watches no job yet."""

from typing import Any

import pytest

from tests.unit.launch.kubernetes.statuses import job_of
from understudy.jobs.specification import JobSpec
from understudy.kube.kind import TRAINJOB
from understudy.kube.timeouts import TERMINATION
from understudy.launch.kubernetes.decisions import DeletePods, Submit, Wait
from understudy.launch.kubernetes.diagnosis import decide
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.status import JobStatus


def pod(number: int, deleted: bool = True) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": f"job-node-0-{number}", "uid": str(number)}
    if deleted:
        meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 20}
    return {"metadata": meta, "spec": {}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("pods", "at", "decision"),
    [
        ((), 0.0, Submit()),
        ((pod(0), pod(1)), 0.0, Wait("waiting until job-node-0-0, job-node-0-1 of the previous job has ended")),
        ((pod(1, deleted=False),), 99.0, Wait("waiting until job-node-0-1 of the previous job has ended")),
        (
            (pod(0, deleted=False), pod(1)),
            21.0 + TERMINATION,
            DeletePods(
                ("job-node-0-1",), (), "job-node-0-1 of the previous job: its node does not answer; force-deleted"
            ),
        ),
    ],
)
def test_a_new_job_waits_until_the_pods_of_the_previous_one_are_gone(
    job: JobSpec, pods: tuple[dict[str, Any], ...], at: float, decision: object
) -> None:
    train_job = job_of(job, kind=TRAINJOB)
    first = History().after(JobStatus(train_job, 0.0, (), pods=pods))
    status = JobStatus(train_job, at, (), pods=pods)
    assert decide(status, first.after(status)) == decision
