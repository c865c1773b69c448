"""With how many nodes a job goes on."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.jobs.specs import job_spec, with_resources
from understudy.jobs import attempts
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.kube.job_state import JobState, state_of
from understudy.launch.kubernetes import elastic

HOMELESS = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]


def pytorchjob(nodes: int) -> dict[str, Any]:
    worker = {"Worker": {"replicas": nodes}}
    return {"metadata": {}, "spec": {"pytorchReplicaSpecs": worker, "runPolicy": {}}}


def pods(homes: list[bool]) -> list[dict[str, Any]]:
    """A pod for each: whether it found a node."""
    return [
        {
            "metadata": {"name": f"job-worker-{index}"},
            "spec": {"nodeName": f"node-{index}"} if home else {},
            "status": {"phase": "Running"} if home else {"phase": "Pending", "conditions": HOMELESS},
        }
        for index, home in enumerate(homes)
    ]


@pytest.fixture
def four(job: JobSpec) -> JobSpec:
    return with_resources(job, nodes=4, min_nodes=2)


QUEUED = JobState("queued", "insufficient unused quota", lacks_quota=True)


def test_a_job_without_a_range_waits(job: JobSpec) -> None:
    assert elastic.smaller_size(with_resources(job, nodes=4, min_nodes=None), pytorchjob(4), QUEUED, []) is None


def test_a_queued_job_asks_for_one_node_less_down_to_its_least(four: JobSpec) -> None:
    assert [elastic.smaller_size(four, pytorchjob(nodes), QUEUED, []) for nodes in (4, 3, 2)] == [3, 2, None]


def test_a_job_that_waits_for_something_else_than_quota_keeps_its_size(four: JobSpec) -> None:
    assert elastic.smaller_size(four, pytorchjob(4), JobState("queued", "LocalQueue x does not exist"), []) is None
    assert elastic.smaller_size(four, pytorchjob(4), JobState("running"), pods([True] * 4)) is None


@given(st.lists(st.booleans(), min_size=4, max_size=4))
def test_a_job_whose_pods_find_no_node_takes_the_available_nodes(homes: list[bool]) -> None:
    spec = job_spec("", resources={"nodes": 4, "min_nodes": 2})
    given_pods = pods(homes)
    state = state_of(pytorchjob(4), elastic.sufficient_pods(spec, given_pods))
    nodes = elastic.smaller_size(spec, pytorchjob(4), state, elastic.sufficient_pods(spec, given_pods))
    if homes[0] and sum(homes) >= 2:
        assert state.stage == "running"
        assert nodes is None, "torchrun goes on with those that are there"
    else:
        assert nodes == max(2, sum(homes))


@pytest.mark.parametrize(
    ("running", "goes_on"),
    [([True, True, False, False], True), ([True, False, False, False], False), ([False, True, True, True], False)],
    ids=["the least", "too few", "without the one that hosts the rendezvous"],
)
def test_a_job_goes_on_with_the_pods_that_run_if_they_are_enough(
    four: JobSpec, running: list[bool], goes_on: bool
) -> None:
    assert elastic.enough_running(four, pods(running)) == goes_on


def test_an_attempt_knows_how_many_ranks_it_has(four: JobSpec) -> None:
    assert attempts.ranks(four) == range(four.world_size)
    four.abandoned_file.touch()
    attempts.begin(four, 3)
    assert not four.abandoned_file.exists(), "that was an earlier one's"
    assert attempts.ranks(four) == range(3)
    attempts.begin(four, 4)
    assert attempts.ranks(four) == range(4)


def test_a_result_is_complete_when_every_rank_of_its_own_attempt_is_done(four: JobSpec) -> None:
    first, second = attempts.begin(four, 8), attempts.begin(four, 4)
    (Path(four.folder) / second / "output").mkdir()
    for rank in range(3):
        Outcome(0, attempt=second).write(four.outcome(rank))
    Outcome(0, attempt=first).write(four.outcome(3))
    assert not attempts.is_complete(four), "results of earlier attempts do not count"
    assert len(attempts.outcomes(four)) == 3
    Outcome(0, attempt=second).write(four.outcome(3))
    Outcome(1, "cut off", "unreported").write(four.outcome(7))
    assert attempts.is_complete(four), "and a rank that this attempt does not have counts neither"
