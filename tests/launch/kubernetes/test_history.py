"""For how long a job stands where it does, which pods do not end, and what is kept until it is done."""

from typing import Any

from tests.jobs.specs import with_resources
from tests.launch.kubernetes.statuses import job_of, status_of
from understudy.errors import FAILED
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes.decisions import Adopt, Finish, Resize, Restart, Submit, Wait
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.patience import RECOVERY, RESIZE, TERMINATION
from understudy.launch.kubernetes.standing import Standing

TOO_SMALL = "insufficient quota for cpu in flavor gpu, request > maximum capacity (32 > 16)"  # as Kueue says it
IN_USE = "insufficient unused quota for cpu in flavor gpu, 8 more needed"


def test_a_job_has_waited_since_it_came_to_where_it_stands(job: JobSpec) -> None:
    clock, history = [0.0], History()

    def after(seconds: float, standing: Standing) -> float:
        nonlocal history
        clock[0] += seconds
        status = status_of(job_of(job), standing, at=clock[0])
        history = history.after(status)
        return history.waited(status)

    never = Standing("queued", TOO_SMALL)
    assert after(5, Standing("queued", "waiting")) == 0
    assert after(3600, Standing("queued", IN_USE)) == 3600
    assert after(5, never) == 0, "what is hopeless has its own minute"
    assert after(50, never) == 50
    assert after(5, Standing("queued", IN_USE)) == 55, "what is no longer hopeless waits on"
    assert after(1, Standing("pending")) == 0


def test_a_job_that_was_made_smaller_waits_less_until_it_is_as_small_as_it_may_be(job: JobSpec) -> None:
    status = status_of(job_of(with_resources(job, nodes=4, min_nodes=2)), Standing("queued"), at=100.0)
    assert History().then(Resize(3, ""), status).waited(status) == RECOVERY - RESIZE
    assert History().then(Resize(2, ""), status).waited(status) == 0


def pod(name: str, uid: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, **meta}}


def test_a_deleted_pod_that_outlives_its_grace_period_lies_on_a_dead_node(job: JobSpec) -> None:
    going = {"deletionTimestamp": "1999-01-01T00:00:00Z", "deletionGracePeriodSeconds": 60}  # by a clock that is wrong
    pods = (pod("a", "1", **going), pod("b", "2"))
    history = History().after(status_of(job_of(job), Standing("running"), pods=pods))
    assert history.overdue(pods, 60 + TERMINATION) == ()
    assert history.overdue(pods, 61 + TERMINATION) == ("a",)
    other = [pod("a", "3", **going)]
    assert history.overdue(other, 61 + TERMINATION) == (), "the one that came instead has its own time"


def test_the_job_is_known_by_name_once_it_is_submitted_or_found_until_it_is_to_be_submitted_again(job: JobSpec) -> None:
    status = status_of(job_of(job), Standing("failed"))
    assert History().then(Submit(), status).name == status.job.name
    adopted = History().then(Adopt("another"), status)
    assert adopted.name == "another"
    assert adopted.then(Restart(""), status).name == ""


def test_what_deletes_the_job_is_remembered_until_it_is_done(job: JobSpec) -> None:
    status = status_of(job_of(job), Standing("failed"))
    for decision in (Restart("lost"), Finish(Outcome(FAILED, "a mistake"))):
        assert History("job").intending(decision).pending == decision
    assert History("job").intending(Restart("lost")).then(Restart("lost"), status).pending is None
    assert History("job").intending(Wait("")).pending is None
