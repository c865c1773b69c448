"""The fault table, on a cluster in memory: faults of ranks and of running pods."""

import pytest

from tests.unit.launch.kubernetes.fake_ranks import end
from tests.unit.launch.kubernetes.fault_world import BOTH, MISTAKE, SIGKILL, Make, rules
from understudy.errors import FAILED
from understudy.jobs.outcome import Outcome
from understudy.kube.kind import JobKind
from understudy.kube.timeouts import STARTS


@BOTH
@rules("rank_failed_before", "result_complete")
@pytest.mark.parametrize("index", [0, 1], ids=["rendezvous", "other"])
def test_a_pod_is_deleted(make: Make, kind: JobKind, index: int) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.delete_pod(world.cluster.running()[index]["metadata"]["name"])
    world.run_until_progress("restarting")
    world.reaches(8)
    assert world.attempt.name.startswith("attempt.2.")
    assert world.ends() == Outcome(0)


@BOTH
@rules("rank_failed_before")
def test_a_rank_is_killed(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.ranks.fail(world.attempt, world.cluster.running()[1], SIGKILL)
    world.run_until_progress("restarting at the last checkpoint: rank 1 ended with signal SIGKILL")
    world.reaches(6)
    assert world.attempt.step <= 8, "it goes on from the checkpoint of step 5"
    assert world.ends() == Outcome(0)


@rules("killed_too_often")
def test_ranks_are_killed_again_and_again(make: Make) -> None:
    world = make(max_restarts=2)
    for step in (3, 6, 9):
        world.reaches(step)
        world.cluster.ranks.fail(world.attempt, world.cluster.running()[1], SIGKILL)
        world.launcher.watch_for(3)
    world.fails("ranks were killed 3 times, resources.teacher.max_restarts allows 2; the last: rank 1 ended")


@rules("pods_evicted")
def test_pods_are_evicted_and_the_job_fails_of_it(make: Make) -> None:
    world = make()
    world.reaches(7)
    pod = world.cluster.running()[1]
    world.cluster.ranks.attempts.clear()
    end(pod, 1)
    pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    world.run_until_progress("restarting at the last checkpoint")
    assert world.ends() == Outcome(0)


@rules("rank_lost", "outcomes_missing")
def test_a_rank_is_done_and_another_one_is_killed(make: Make) -> None:
    world = make()
    world.reaches(20)
    first, second = world.cluster.running()
    world.cluster.ranks.finish(world.attempt, first)
    world.cluster.ranks.fail(world.attempt, second, SIGKILL)
    world.run_until_progress("restarting at the last checkpoint: rank 1 ended with signal SIGKILL")
    assert world.ends() == Outcome(0)
    assert len(world.cluster.submitted) == 2


@rules("rank_failed")
def test_a_rank_is_done_and_another_one_fails(make: Make) -> None:
    world = make()
    world.reaches(20)
    first, second = world.cluster.running()
    world.cluster.ranks.finish(world.attempt, first)
    world.cluster.ranks.fail(world.attempt, second, MISTAKE)
    world.fails("no weights for 10 labels")


@rules("outcomes_missing", "result_missing")
def test_a_job_succeeded_for_its_operator_alone(make: Make) -> None:
    world = make()
    world.reaches(7)
    world.cluster.ranks.attempts.clear()
    for pod in world.cluster.running():
        end(pod, 0)
    world.run_until_progress("restarting at the last checkpoint: not every rank reported an outcome")
    assert world.ends() == Outcome(0)


@BOTH
@rules("rank_failed_before")
def test_a_rank_hangs(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(7)
    world.attempt.hangs = True
    world.run_until_progress(
        "restarting at the last checkpoint: no rank has made progress for 41 s (rank 0: training, step 7"
    )
    assert world.ends() == Outcome(0)


@BOTH
@rules("no_progress")
def test_ranks_end_before_a_further_step_each_time(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.cluster.ranks.breaks_at = 7
    world.cluster.ranks.breaks_by = Outcome(FAILED, "the connection was lost", "lost")
    world.fails(f"the job was started {STARTS} times without progress: the connection was lost")


@BOTH
@rules("rank_failed")
def test_an_exception_in_user_code(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(7)
    world.spec.log(1).write_text("Traceback\nRuntimeError: no weights for 10 labels\n")
    world.cluster.ranks.fail(world.attempt, world.cluster.running()[1], MISTAKE)
    world.fails("no weights for 10 labels", "exit code 1", "the last lines of rank 1:\nTraceback")


@rules("rank_failed")
def test_an_image_of_another_build(make: Make) -> None:
    world = make()
    world.reaches(1)
    outcome = Outcome(FAILED, "the job was written by understudy 1, this image has 2")
    world.cluster.ranks.fail(world.attempt, world.cluster.running()[0], outcome)
    world.fails("the job was written by understudy 1, this image has 2")


@BOTH
@rules("memory_exceeded")
def test_more_memory_than_allowed(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.has_operator = False  # it is slower than the launcher
    end(world.cluster.running()[1], 137, "OOMKilled")
    world.fails("ran out of memory (OOMKilled, exit code 137; its limit is 1Gi)", "Raise resources.teacher.memory")


@rules("ended_without_outcome")
def test_a_pod_fails_and_no_rank_gives_a_reason(make: Make) -> None:
    world = make()
    world.reaches(7)
    world.cluster.ranks.attempts.clear()
    pod = world.cluster.running()[1]
    end(pod, 1)
    name = pod["metadata"]["name"]
    world.fails("failed because 1 replica(s) failed", f"the last lines of {name}:\n{name}: the last words")
