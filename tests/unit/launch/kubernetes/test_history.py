"""How long a job has been in its stage, which pods do not end, and records of unfinished work."""

from typing import Any

from tests.unit.jobs.specs import with_resources
from tests.unit.launch.kubernetes.statuses import job_of, status_of
from understudy.errors import FAILED
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.kube.job_state import JobState
from understudy.kube.timeouts import RECOVERY, RESIZE, TERMINATION
from understudy.launch.kubernetes.decisions import Adopt, Finish, Resize, Restart, Submit, Wait
from understudy.launch.kubernetes.history import History

TOO_SMALL = "insufficient quota for cpu in flavor gpu, request > maximum capacity (32 > 16)"  # as Kueue says it
IN_USE = "insufficient unused quota for cpu in flavor gpu, 8 more needed"


def test_a_job_has_waited_since_it_came_to_where_it_stands(job: JobSpec) -> None:
    clock, history = [0.0], History()

    def after(seconds: float, state: JobState) -> float:
        nonlocal history
        clock[0] += seconds
        status = status_of(job_of(job), state, at=clock[0])
        history = history.after(status)
        return history.seconds_in_state(status)

    never = JobState("queued", TOO_SMALL)
    assert after(5, JobState("queued", "waiting")) == 0
    assert after(3600, JobState("queued", IN_USE)) == 3600
    assert after(5, never) == 0, "a hopeless state has a minute of its own"
    assert after(50, never) == 50
    assert after(5, JobState("queued", IN_USE)) == 55, "a state that became hopeful again goes on waiting"
    assert after(1, JobState("pending")) == 0


def test_a_job_that_was_made_smaller_waits_less_until_it_is_as_small_as_it_may_be(job: JobSpec) -> None:
    status = status_of(job_of(with_resources(job, nodes=4, min_nodes=2)), JobState("queued"), at=100.0)
    assert History().after_action(Resize(3, ""), status).seconds_in_state(status) == RECOVERY - RESIZE
    assert History().after_action(Resize(2, ""), status).seconds_in_state(status) == 0


def pod(name: str, uid: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, **meta}}


def test_a_deleted_pod_that_outlives_its_grace_period_lies_on_a_dead_node(job: JobSpec) -> None:
    going = {"deletionTimestamp": "1999-01-01T00:00:00Z", "deletionGracePeriodSeconds": 60}  # by a clock that is wrong
    pods = (pod("a", "1", **going), pod("b", "2"))
    history = History().after(status_of(job_of(job), JobState("running"), pods=pods))
    assert history.overdue(pods, 60 + TERMINATION) == ()
    assert history.overdue(pods, 61 + TERMINATION) == ("a",)
    replaced = [pod("a", "3", **going)]
    assert history.overdue(replaced, 61 + TERMINATION) == (), "the one that came instead has its own time"


def test_the_job_has_a_name_from_its_submission_until_it_is_to_be_submitted_again(job: JobSpec) -> None:
    status = status_of(job_of(job), JobState("failed"))
    assert History().after_action(Submit(), status).name == status.job.name
    adopted = History().after_action(Adopt("another"), status)
    assert adopted.name == "another"
    assert adopted.after_action(Restart(""), status).name == ""


def test_the_reason_for_deleting_the_job_is_remembered_until_it_is_deleted(job: JobSpec) -> None:
    status = status_of(job_of(job), JobState("failed"))
    for decision in (Restart("lost"), Finish(Outcome(FAILED, "a mistake"))):
        assert History("job").with_pending(decision).pending == decision
    assert History("job").with_pending(Restart("lost")).after_action(Restart("lost"), status).pending is None
    assert History("job").with_pending(Wait("")).pending is None
