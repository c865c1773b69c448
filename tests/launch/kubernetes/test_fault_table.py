"""Every row of docs/cluster.md's fault table that the launcher decides, on a cluster in memory.

The same on a real one is in tests/cluster.

A test names the rules that its fault is for, and fails unless they decided.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.specs import job_spec
from tests.launch.kubernetes.fake_cluster import FakeCluster
from tests.launch.kubernetes.fake_launcher import FakeLauncher
from tests.launch.kubernetes.fake_ranks import Ranks, end, uid
from tests.launch.kubernetes.statuses import job_of
from understudy.errors import FAILED, STOPPED
from understudy.jobs.outcome import Outcome
from understudy.launch.kubernetes import diagnosis
from understudy.launch.kubernetes.diagnosis import RULES
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.identity import Identity
from understudy.launch.kubernetes.kind import PYTORCHJOB, TRAINJOB, JobKind
from understudy.launch.kubernetes.patience import STARTS
from understudy.launch.kubernetes.status import JobStatus

TABLE = Path(__file__).parents[3] / "docs" / "cluster.md"
SIGKILL = Outcome(FAILED, "rank 1 ended with signal SIGKILL", "killed")
MISTAKE = Outcome(FAILED, "rank 1: RuntimeError: no weights for 10 labels", "raised")
BOTH = pytest.mark.parametrize("kind", [PYTORCHJOB, TRAINJOB], ids=lambda kind: kind.name)


class World:
    """A cluster, a launcher in it that supervises a job of two nodes, and the rules that decided anything."""

    def __init__(self, folder: Path, kind: JobKind, resources: dict[str, Any]) -> None:
        given = {"nodes": 2, "hang_timeout": 40, "termination_grace_period": 20, **resources}
        folder.mkdir()
        self.spec = job_spec(folder, supervised=True, resources=given, launcher_timeout=30.0)
        self.job = job_of(self.spec, kind=kind)
        self.cluster = FakeCluster(Ranks(self.spec), nodes=self.spec.nodes, kind=kind)
        self.launcher = FakeLauncher(self.cluster, self.job)

    @property
    def attempt(self) -> Any:
        return list(self.cluster.ranks.attempts.values())[-1]

    def reaches(self, step: int) -> None:
        """Supervise until the ranks are there."""
        for _ in range(1000):
            assert self.launcher.watch_for(0.5) is None
            if self.cluster.ranks.attempts and self.attempt.step >= step:
                return
        raise AssertionError(self.launcher.said)

    def ends(self, seconds: float = 3000.0) -> Outcome:
        outcome = self.launcher.watch_for(seconds)
        assert outcome is not None, self.launcher.said
        if outcome.exit_code:
            self.cluster.pass_seconds(2)
            assert self.cluster.live_jobs(self.job.identity.labels["understudy.key"]) == []
        return outcome

    def says(self, words: str, seconds: float = 1000.0) -> None:
        assert self.launcher.sees(words, seconds), self.launcher.said

    def fails(self, *words: str) -> None:
        outcome = self.ends()
        assert outcome.exit_code == FAILED
        for part in words:
            assert part in outcome.message


Make = Callable[..., World]


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the rules that decided anything."""
    names: set[str] = set()

    def noted(rule: diagnosis.Rule) -> diagnosis.Rule:
        def note(status: JobStatus, history: History) -> Any:
            decision = rule(status, history)
            if decision:
                names.add(rule.__name__)
            return decision

        return note

    monkeypatch.setattr(diagnosis, "RULES", tuple(noted(rule) for rule in RULES))
    return names


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda kind=PYTORCHJOB, **resources: World(tmp_path / "job", kind, resources)


@pytest.fixture(autouse=True)
def _rules_decide(request: pytest.FixtureRequest, decided: set[str]) -> Iterator[None]:
    yield
    for mark in request.node.iter_markers("rules"):
        assert set(mark.args) <= decided, f"decided by {sorted(decided)}"


def rules(*names: str) -> Any:
    """The rules that a fault is for."""
    return pytest.mark.rules(*names)


@BOTH
@rules("no_job", "result_complete")
def test_nothing_goes_wrong(make: Make, kind: JobKind) -> None:
    world = make(kind)
    assert world.ends() == Outcome(0)
    assert world.launcher.said[0] == f"submitted as {world.job.name}"
    assert "running: on node-0, node-1" in world.launcher.said


@BOTH
@rules("rank_failed_before", "result_complete")
@pytest.mark.parametrize("which", [0, 1], ids=["rendezvous", "other"])
def test_a_pod_is_deleted(make: Make, kind: JobKind, which: int) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.delete_pod(world.cluster.running()[which]["metadata"]["name"])
    world.says("restarting")
    world.reaches(8)
    assert world.attempt.name.startswith("attempt.2.")
    assert world.ends() == Outcome(0)


@BOTH
@rules("rank_failed_before")
def test_a_rank_is_killed(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.ranks.fail(world.attempt, world.cluster.running()[1], SIGKILL)
    world.says("restarting at the last checkpoint: rank 1 ended with signal SIGKILL")
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


@BOTH
@rules("node_lost")
def test_a_node_dies_and_comes_back(make: Make, kind: JobKind) -> None:
    world = make(kind, hang_timeout=600)
    world.reaches(7)
    node = world.cluster.running()[1]["spec"]["nodeName"]
    world.cluster.kill_node(node)
    world.says(f": node {node} does not answer; its pods are given up")
    assert world.launcher.watch_for(60) is None
    world.cluster.revive_node(node)
    assert world.ends() == Outcome(0)
    assert world.cluster.submitted == [world.job.name] * (1 if kind.replaces_pods else 2)


@rules("node_lost", "pods_left_over")
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_dead_node_s_pods_are_forgotten_before_a_train_job_of_the_same_name_is_made(make: Make, nodes: int) -> None:
    world = make(TRAINJOB, hang_timeout=600, nodes=nodes)
    world.reaches(7)
    dead = world.cluster.running()[-1]
    world.cluster.kill_node(dead["spec"]["nodeName"])
    world.cluster.nodes_up["spare"] = True
    name = dead["metadata"]["name"]
    world.says(f"restarting at the last checkpoint: node {dead['spec']['nodeName']} does not answer")
    world.says(f"{name} of the job before: its node does not answer; given up")
    assert world.ends() == Outcome(0)
    assert world.cluster.submitted == [world.job.name] * 2


@BOTH
@rules("launcher_replaced")
def test_the_launcher_is_replaced(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.pass_seconds(5)
    world.launcher = FakeLauncher(world.cluster, world.job)
    world.says(f"watching the job {world.job.name}, which was submitted before")
    assert world.ends() == Outcome(0)
    assert world.attempt.name.startswith("attempt.1."), "no step is done twice"


@rules("launcher_replaced")
def test_of_several_jobs_that_do_the_same_work_one_goes_on(make: Make) -> None:
    world = make()
    other = job_of(world.spec, identity=Identity("another-run", "teacher", world.job.identity.key))
    world.cluster.create_job(PYTORCHJOB, other.manifest())
    world.cluster.create_job(PYTORCHJOB, world.job.manifest())
    world.says(f"watching the job {world.job.name}")
    assert world.cluster.deleted == [other.name]


@rules("job_left_over", "no_job")
def test_a_job_that_failed_before_is_there(make: Make) -> None:
    world = make()
    world.reaches(2)
    world.cluster.ranks.fail(world.attempt, world.cluster.running()[1], MISTAKE)
    world.cluster.pass_seconds(5)
    world.launcher = FakeLauncher(world.cluster, world.job)
    world.says(f"waiting until {world.job.name}, which has ended, is deleted")
    assert world.ends() == Outcome(0)


@BOTH
@rules("launcher_unseen")
def test_nobody_watches_the_job_for_a_while(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.cluster.ranks.steps = 100
    world.reaches(7)
    world.cluster.pass_seconds(35)
    assert world.spec.abandoned_file.exists()
    world.says("restarting at the last checkpoint")
    assert world.ends() == Outcome(0)


@rules("launcher_unseen")
def test_ranks_never_see_their_launcher(make: Make) -> None:
    world = make()
    world.launcher = FakeLauncher(world.cluster, world.job, is_seen=False)
    world.fails(f"its ranks left {STARTS} times since they saw no launcher for 30 s")


@rules("run_stopped")
def test_the_run_is_stopped(make: Make) -> None:
    world = make()
    world.reaches(7)
    world.spec.stop_file.touch()
    outcome = world.ends()
    assert outcome.exit_code == STOPPED
    assert re.fullmatch(r"stopped at step \d+, at a checkpoint", outcome.message)


@BOTH
@rules("job_deleted")
@pytest.mark.parametrize(
    ("owner", "exit_code", "words"),
    [
        (None, STOPPED, "Job run is not there any more"),
        ({}, FAILED, "was deleted by somebody else; run again to go on"),
    ],
    ids=["with its run", "alone"],
)
def test_the_job_is_deleted(make: Make, kind: JobKind, owner: Any, exit_code: int, words: str) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.owner = world.cluster.owner if owner == {} else owner
    world.cluster.delete_job(kind, world.job.name)
    outcome = world.ends()
    assert outcome.exit_code == exit_code
    assert words in outcome.message


@rules("pods_evicted", "no_job")
def test_a_job_goes_with_the_run_that_had_submitted_it(make: Make) -> None:
    world = make()
    other = job_of(world.spec, identity=Identity("another-run", "teacher", world.job.identity.key))
    world.cluster.create_job(PYTORCHJOB, other.manifest())
    world.says("watching the job")
    world.reaches(2)
    world.cluster.delete_job(PYTORCHJOB, other.name)
    assert world.ends() == Outcome(0)
    assert world.cluster.submitted == [other.name, world.job.name]


@rules("pods_evicted")
def test_pods_are_evicted_and_the_job_fails_of_it(make: Make) -> None:
    world = make()
    world.reaches(7)
    pod = world.cluster.running()[1]
    world.cluster.ranks.attempts.clear()
    end(pod, 1)
    pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    world.says("restarting at the last checkpoint")
    assert world.ends() == Outcome(0)


@rules("rank_lost", "outcomes_missing")
def test_a_rank_is_done_and_another_one_is_killed(make: Make) -> None:
    world = make()
    world.reaches(20)
    first, second = world.cluster.running()
    world.cluster.ranks.finish(world.attempt, first)
    world.cluster.ranks.fail(world.attempt, second, SIGKILL)
    world.says("restarting at the last checkpoint: rank 1 ended with signal SIGKILL")
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
    world.says("restarting at the last checkpoint: not every rank has said how it ended")
    assert world.ends() == Outcome(0)


@BOTH
@rules("rank_failed_before")
def test_a_rank_hangs(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(7)
    world.attempt.hangs = True
    world.says("restarting at the last checkpoint: no rank has moved for 41 s (rank 0: training, step 7")
    assert world.ends() == Outcome(0)


@BOTH
@rules("no_progress")
def test_ranks_end_before_a_further_step_each_time(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.cluster.ranks.breaks_at = 7
    world.cluster.ranks.breaks_by = Outcome(FAILED, "the connection was lost", "lost")
    world.fails(f"the job was started {STARTS} times and got no further: the connection was lost")


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
    told = Outcome(FAILED, "the job was written by understudy 1, this image has 2")
    world.cluster.ranks.fail(world.attempt, world.cluster.running()[0], told)
    world.fails("the job was written by understudy 1, this image has 2")


@BOTH
@rules("memory_exceeded")
def test_more_memory_than_allowed(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.has_operator = False  # it is slower than the launcher
    end(world.cluster.running()[1], 137, "OOMKilled")
    world.fails("ran out of memory (OOMKilled, exit code 137; its limit is 1Gi)", "Raise resources.teacher.memory")


@rules("ended_without_word")
def test_a_pod_fails_and_no_rank_says_why(make: Make) -> None:
    world = make()
    world.reaches(7)
    world.cluster.ranks.attempts.clear()
    pod = world.cluster.running()[1]
    end(pod, 1)
    name = pod["metadata"]["name"]
    world.fails("failed because 1 replica(s) failed", f"the last lines of {name}:\n{name}: the last words")


@BOTH
@rules("container_cannot_start")
@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("ImagePullBackOff", "image i:1 cannot be pulled: not found"),
        ("CreateContainerError", "cannot start: not found"),
    ],
)
def test_a_container_cannot_start(make: Make, kind: JobKind, reason: str, words: str) -> None:
    world = make(kind)
    world.cluster.waiting = {"reason": reason, "message": "not found"}
    world.says(words)
    began = world.cluster.now
    world.fails(words)
    assert 60 <= world.cluster.now - began < 70


@BOTH
@rules("volume_missing")
def test_a_volume_cannot_be_mounted(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.cluster.unmounted = "MountVolume.SetUp failed: secret extra not found"
    world.says("does not start yet: MountVolume.SetUp failed")
    world.fails("did not start for 10 minutes: MountVolume.SetUp failed")


@BOTH
@rules("node_never_fits")
def test_more_gpus_than_any_node_has(make: Make, kind: JobKind) -> None:
    world = make(kind, processes=8)
    world.says("pending: no node takes")
    world.fails("this can never be scheduled: a pod asks for 8 nvidia.com/gpu, and the largest node")


@rules("node_never_fits")
def test_whether_a_node_could_take_it_is_not_known(make: Make) -> None:
    world = make(processes=8)
    world.cluster.forbidden.add("nodes")
    world.says("since this account may not list nodes")
    assert world.launcher.watch_for(600) is None


def test_a_cloud_has_no_such_nodes_now(make: Make) -> None:
    world = make(processes=8)
    world.says("pending: no node takes")
    for pod in world.cluster.pods_made.values():
        world.cluster.report(uid(pod), "FailedScaleUp", "GCE out of resources")
    assert world.launcher.watch_for(3600) is None


@BOTH
@rules("pods_refused")
def test_the_cluster_refuses_the_pods(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.cluster.pods_refused = "no PriorityClass with name nope was found"
    world.fails("the cluster refuses the job's pods: no PriorityClass", "correct resources.teacher.priority")


@rules("pods_refused")
def test_the_operator_is_down(make: Make) -> None:
    world = make()
    world.cluster.has_operator = False
    world.says("pending: still no pods; does the training operator run?")
    world.cluster.has_operator = True
    assert world.ends() == Outcome(0)


@BOTH
def test_quota_is_full(make: Make, kind: JobKind) -> None:
    world = make(kind, queue="gpu")
    world.cluster.free_quota = 1
    world.says("queued: Kueue: insufficient unused quota")
    assert world.launcher.watch_for(3600) is None
    world.cluster.free_quota = 2
    assert world.ends() == Outcome(0)


@BOTH
@rules("queue_never_admits")
def test_a_quota_that_can_never_be_enough(make: Make, kind: JobKind) -> None:
    world = make(kind, queue="gpu")
    world.cluster.quota = 1
    world.fails("the queue can never admit this job", "maximum capacity")


@rules("too_few_nodes")
def test_an_elastic_job_beyond_all_quota_goes_on_with_fewer_nodes(make: Make) -> None:
    world = make(nodes=3, min_nodes=1, queue="gpu")
    world.cluster.free_quota = 1
    world.says("asking for 2 of 3 nodes: Kueue: insufficient unused quota")
    world.says("asking for 1 of 3 nodes")
    assert world.ends() == Outcome(0)


@rules("too_few_nodes")
def test_an_elastic_job_whose_first_pod_finds_no_node_goes_on_with_fewer_nodes(make: Make) -> None:
    world = make(nodes=3, min_nodes=2)
    world.cluster.nodes_up["node-2"] = world.cluster.nodes_up["node-1"] = False
    world.says("asking for 2 of 3 nodes: no node takes")
    world.cluster.nodes_up["node-1"] = True
    assert world.ends() == Outcome(0)


@BOTH
def test_a_job_is_preempted(make: Make, kind: JobKind) -> None:
    world = make(kind, queue="gpu")
    world.reaches(7)
    world.cluster.preempted.add(uid(world.cluster.made[world.job.name]))
    world.says("queued: Kueue: Preempted to accommodate a workload")
    assert world.launcher.watch_for(600) is None
    world.cluster.preempted.clear()
    world.reaches(8)
    assert world.attempt.step <= 11, "nothing is done twice"
    assert world.ends() == Outcome(0)


def test_admission_refuses_the_job(make: Make) -> None:
    world = make()
    world.cluster.forbidden.add("create")
    world.fails(f"the job {world.job.name} was not accepted: a right is missing")


@BOTH
def test_the_api_server_is_away(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(3)
    world.cluster.away_until = world.cluster.now + 120
    world.says("the API server does not answer (timeout); the job goes on")
    assert world.ends() == Outcome(0)
    assert world.cluster.submitted == [world.job.name]


@rules("deletion_unanswered")
@pytest.mark.parametrize(("failure", "words"), [(MISTAKE, "no weights for 10 labels"), (SIGKILL, "")])
def test_the_answer_to_a_deletion_is_lost(make: Make, failure: Outcome, words: str) -> None:
    world = make()
    world.reaches(20)
    first, second = world.cluster.running()
    world.cluster.ranks.finish(world.attempt, first)
    world.cluster.ranks.fail(world.attempt, second, failure)
    world.cluster.loses_answers = True
    world.says("the API server does not answer (connection reset)")
    outcome = world.ends()
    assert words in outcome.message
    assert outcome.exit_code == failure.exit_code if words else outcome == Outcome(0)


def test_every_rule_stands_in_the_fault_table_and_is_tested_here() -> None:
    text = TABLE.read_text()
    table = text[text.index("| fault | rule |") :].split("\n\n")[0]
    cells = [row.split(" | ")[1] for row in table.splitlines()[2:]]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == {rule.__name__ for rule in RULES}
    assert all(rule.__doc__ for rule in RULES)
    marks = re.findall(r"^@rules\((.*)\)$", Path(__file__).read_text(), re.MULTILINE)
    tested = {name for mark in marks for name in re.findall(r'"(\w+)"', mark)}
    assert tested == named
