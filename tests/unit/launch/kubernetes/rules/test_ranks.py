"""Outcomes of ranks, and the decisions that follow."""

from typing import Any, Literal

import pytest

from tests.unit.jobs.specs import with_resources
from tests.unit.launch.kubernetes.statuses import job_of, status_of
from understudy.errors import FAILED, STOPPED
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.kube.job_state import JobState
from understudy.kube.timeouts import STARTS
from understudy.launch.kubernetes.decisions import Announce, Finish, Restart, Wait
from understudy.launch.kubernetes.diagnosis import decide
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.starts import Starts

RUNNING = JobState("running", "on n")


def killed(times: int, kind: Literal["killed", "lost"] = "killed") -> tuple[Outcome, ...]:
    return tuple(Outcome(FAILED, f"{kind} {number}", kind) for number in range(times))


def test_a_job_restarts_after_killed_ranks_as_often_as_the_recipe_allows_and_after_lost_ones_always(
    job: JobSpec,
) -> None:
    mine = job_of(with_resources(job, max_restarts=2))

    def decision(*failures: Outcome) -> Any:
        return decide(status_of(mine, RUNNING, failures=failures), History(announced=len(failures)))

    assert decision(*killed(2), *killed(5, "lost")) == Wait("running: on n")
    verdict = decision(*killed(3))
    message = "ranks were killed 3 times, resources.teacher.max_restarts allows 2; the last: killed 2"
    assert verdict == Finish(Outcome(FAILED, message), explain=True)


def test_how_earlier_attempts_failed_is_logged_once(job: JobSpec) -> None:
    status = status_of(job_of(job), RUNNING, failures=killed(2, "lost"))
    news = decide(status, History(announced=1))
    assert news == Announce(("restarting at the last checkpoint: lost 1",))
    assert decide(status, History(announced=1).after_action(news, status)) == Wait("running: on n")


@pytest.mark.parametrize(
    ("failure", "has_to_stop", "decision"),
    [
        (Outcome(STOPPED, "stopped at step 3"), True, Finish(Outcome(STOPPED, "stopped at step 3"))),
        (Outcome(STOPPED, "stopped at step 3"), False, Restart("stopped at step 3")),
        (Outcome(FAILED, "SIGKILL", "killed"), False, Restart("SIGKILL")),
        (Outcome(FAILED, "gone", "lost"), False, Restart("gone")),
        (Outcome(FAILED, "a mistake"), False, Finish(Outcome(FAILED, "a mistake"), explain=True)),
    ],
)
@pytest.mark.parametrize("ended_or_running", ["ended", "others are done"])
def test_the_outcome_of_an_attempt_decides_whether_there_is_another(
    job: JobSpec, failure: Outcome, has_to_stop: bool, decision: Any, ended_or_running: str
) -> None:
    state, earlier = (JobState("failed"), ()) if ended_or_running == "ended" else (RUNNING, (Outcome(0),))
    status = status_of(job_of(job), state, outcomes=(*earlier, failure), has_to_stop=has_to_stop)
    assert decide(status, History()) == decision


def test_an_attempt_of_which_all_that_spoke_failed_is_left_to_the_operator(job: JobSpec) -> None:
    status = status_of(job_of(job), RUNNING, outcomes=(Outcome(FAILED, "SIGKILL", "killed"),))
    assert decide(status, History()) == Wait("running: on n")


def test_a_job_that_gets_no_further_ends_before_it_is_restarted_once_more(job: JobSpec) -> None:
    lost = Outcome(FAILED, "gone", "lost")
    status = status_of(job_of(job), JobState("failed"), outcomes=(lost,), failures=(lost,))
    assert decide(status, History(starts=Starts(STARTS), announced=1)) == Restart("gone")
    text = f"the job was started {STARTS} times without progress: gone"
    assert decide(status, History(starts=Starts(STARTS + 1), announced=1)) == Finish(
        Outcome(FAILED, text), explain=True
    )
