"""The fault table of docs/operating/supervision.md, on a cluster in memory: each row of the launcher has a test.

Here are the faults of launchers and of the API server; test_fault_table_ranks.py and test_fault_table_cluster.py have
the others. A test names the rules that its fault is for, and fails unless they decided. Faults of a real cluster are in
tests/cluster.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.unit.launch.kubernetes.fake_launcher import FakeLauncher
from tests.unit.launch.kubernetes.fault_world import BOTH, MISTAKE, SIGKILL, Make, rules
from tests.unit.launch.kubernetes.statuses import job_of
from understudy.errors import FAILED, STOPPED
from understudy.jobs.outcome import Outcome
from understudy.kube.identity import Identity
from understudy.kube.kind import PYTORCHJOB, JobKind
from understudy.kube.timeouts import STARTS
from understudy.launch.kubernetes.diagnosis import RULES

TABLE = ROOT / "docs" / "operating" / "supervision.md"


@BOTH
@rules("no_job", "result_complete")
def test_nothing_goes_wrong(make: Make, kind: JobKind) -> None:
    world = make(kind)
    assert world.ends() == Outcome(0)
    assert world.launcher.messages[0] == f"submitted as {world.job.name}"
    assert "running: on node-0, node-1" in world.launcher.messages


@BOTH
@rules("launcher_replaced")
def test_the_launcher_is_replaced(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.pass_seconds(5)
    world.launcher = FakeLauncher(world.cluster, world.job)
    world.run_until_progress(f"watching the job {world.job.name}, which was submitted before")
    assert world.ends() == Outcome(0)
    assert world.attempt.name.startswith("attempt.1."), "no step is done twice"


@rules("launcher_replaced")
def test_of_several_jobs_that_do_the_same_work_one_continues(make: Make) -> None:
    world = make()
    other_job = job_of(world.spec, identity=Identity("another-run", "teacher", world.job.identity.key))
    world.cluster.create_job(PYTORCHJOB, other_job.manifest())
    world.cluster.create_job(PYTORCHJOB, world.job.manifest())
    world.run_until_progress(f"watching the job {world.job.name}")
    assert world.cluster.deleted == [other_job.name]


@rules("job_left_over", "no_job")
def test_a_job_that_failed_before_is_there(make: Make) -> None:
    world = make()
    world.reaches(2)
    world.cluster.ranks.fail(world.attempt, world.cluster.running()[1], MISTAKE)
    world.cluster.pass_seconds(5)
    world.launcher = FakeLauncher(world.cluster, world.job)
    world.run_until_progress(f"waiting until {world.job.name}, which has ended, is deleted")
    assert world.ends() == Outcome(0)


@BOTH
@rules("launcher_unseen")
def test_nobody_watches_the_job_for_a_while(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.cluster.ranks.steps = 100
    world.reaches(7)
    world.cluster.pass_seconds(35)
    assert world.spec.abandoned_file.exists()
    world.run_until_progress("restarting at the last checkpoint")
    assert world.ends() == Outcome(0)


@rules("launcher_unseen")
def test_ranks_never_see_their_launcher(make: Make) -> None:
    world = make()
    world.launcher = FakeLauncher(world.cluster, world.job, is_seen=False)
    world.fails(f"its ranks ended {STARTS} times because they saw no launcher for 30 s")


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
    ("owner", "exit_code", "text"),
    [
        (None, STOPPED, "Job run no longer exists"),
        ({}, FAILED, "was deleted by another client; run again to resume"),
    ],
    ids=["with its run", "alone"],
)
def test_the_job_is_deleted(make: Make, kind: JobKind, owner: Any, exit_code: int, text: str) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.owner = world.cluster.owner if owner == {} else owner
    world.cluster.delete_job(kind, world.job.name)
    outcome = world.ends()
    assert outcome.exit_code == exit_code
    assert text in outcome.message


@rules("pods_evicted", "no_job")
def test_a_job_goes_with_the_run_that_had_submitted_it(make: Make) -> None:
    world = make()
    other_job = job_of(world.spec, identity=Identity("another-run", "teacher", world.job.identity.key))
    world.cluster.create_job(PYTORCHJOB, other_job.manifest())
    world.run_until_progress("watching the job")
    world.reaches(2)
    world.cluster.delete_job(PYTORCHJOB, other_job.name)
    assert world.ends() == Outcome(0)
    assert world.cluster.submitted == [other_job.name, world.job.name]


def test_admission_refuses_the_job(make: Make) -> None:
    world = make()
    world.cluster.forbidden.add("create")
    world.fails(f"the job {world.job.name} was not accepted: a permission is missing")


@BOTH
def test_the_api_server_is_away(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(3)
    world.cluster.away_until = world.cluster.now + 120
    world.run_until_progress("the API server does not answer (timeout); the job keeps running")
    assert world.ends() == Outcome(0)
    assert world.cluster.submitted == [world.job.name]


@rules("deletion_unanswered")
@pytest.mark.parametrize(("failure", "text"), [(MISTAKE, "no weights for 10 labels"), (SIGKILL, "")])
def test_the_answer_to_a_deletion_is_lost(make: Make, failure: Outcome, text: str) -> None:
    world = make()
    world.reaches(20)
    first, second = world.cluster.running()
    world.cluster.ranks.finish(world.attempt, first)
    world.cluster.ranks.fail(world.attempt, second, failure)
    world.cluster.loses_answers = True
    world.run_until_progress("the API server does not answer (connection reset)")
    outcome = world.ends()
    assert text in outcome.message
    assert outcome.exit_code == failure.exit_code if text else outcome == Outcome(0)


def test_every_rule_is_in_the_fault_table_and_is_tested_here() -> None:
    text = TABLE.read_text()
    table = text[text.index("| fault | rule |") :].split("\n\n")[0]
    cells = [row.split(" | ")[1] for row in table.splitlines()[2:]]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == {rule.__name__ for rule in RULES}
    assert all(rule.__doc__ for rule in RULES)
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_fault_table*.py"))
    marks = re.findall(r"^@rules\((.*)\)$", tests, re.MULTILINE)
    tested = {name for mark in marks for name in re.findall(r'"(\w+)"', mark)}
    assert tested == named
