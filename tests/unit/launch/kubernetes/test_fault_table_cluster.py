"""The fault table, on a cluster in memory: nodes, queues, images and volumes that are not there."""

import pytest

from tests.unit.launch.kubernetes.fake_ranks import uid
from tests.unit.launch.kubernetes.fault_world import BOTH, Make, rules
from understudy.jobs.outcome import Outcome
from understudy.kube.kind import TRAINJOB, JobKind


@BOTH
@rules("node_lost")
def test_a_node_dies_and_comes_back(make: Make, kind: JobKind) -> None:
    world = make(kind, hang_timeout=600)
    world.reaches(7)
    node = world.cluster.running()[1]["spec"]["nodeName"]
    world.cluster.kill_node(node)
    world.run_until_progress(f": node {node} does not answer; its pods are force-deleted")
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
    world.run_until_progress(f"restarting at the last checkpoint: node {dead['spec']['nodeName']} does not answer")
    world.run_until_progress(f"{name} of the previous job: its node does not answer; force-deleted")
    assert world.ends() == Outcome(0)
    assert world.cluster.submitted == [world.job.name] * 2


@BOTH
@rules("container_cannot_start")
@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("ImagePullBackOff", "image i:1 cannot be pulled: not found"),
        ("CreateContainerError", "cannot start: not found"),
    ],
)
def test_a_container_cannot_start(make: Make, kind: JobKind, reason: str, text: str) -> None:
    world = make(kind)
    world.cluster.waiting = {"reason": reason, "message": "not found"}
    world.run_until_progress(text)
    began = world.cluster.now
    world.fails(text)
    assert 60 <= world.cluster.now - began < 70


@BOTH
@rules("volume_missing")
def test_a_volume_cannot_be_mounted(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.cluster.unmounted = "MountVolume.SetUp failed: secret extra not found"
    world.run_until_progress("does not start yet: MountVolume.SetUp failed")
    world.fails("did not start for 10 minutes: MountVolume.SetUp failed")


@BOTH
@rules("node_never_fits")
def test_more_gpus_than_any_node_has(make: Make, kind: JobKind) -> None:
    world = make(kind, processes=8)
    world.run_until_progress("pending: no node fits")
    world.fails("this can never be scheduled: a pod asks for 8 nvidia.com/gpu, and the largest node")


@rules("node_never_fits")
def test_it_is_unknown_whether_a_node_could_take_it(make: Make) -> None:
    world = make(processes=8)
    world.cluster.forbidden.add("nodes")
    world.run_until_progress("since this account may not list nodes")
    assert world.launcher.watch_for(600) is None


def test_a_cloud_has_no_such_nodes_now(make: Make) -> None:
    world = make(processes=8)
    world.run_until_progress("pending: no node fits")
    for pod in world.cluster.pods_made.values():
        world.cluster.report(uid(pod), "FailedScaleUp", "GCE out of resources")
    assert world.launcher.watch_for(900) is None


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
    world.run_until_progress("pending: still no pods; is the training operator running?")
    world.cluster.has_operator = True
    assert world.ends() == Outcome(0)


@BOTH
@rules("operator_silent")
def test_the_operator_is_down_when_pods_end(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.reaches(7)
    world.cluster.has_operator = False
    world.run_until_progress("ending: all pods have ended; is the training operator running?")
    world.cluster.has_operator = True
    assert world.ends() == Outcome(0)


@BOTH
def test_quota_is_full(make: Make, kind: JobKind) -> None:
    world = make(kind, queue="gpu")
    world.cluster.free_quota = 1
    world.run_until_progress("queued: Kueue: insufficient unused quota")
    assert world.launcher.watch_for(900) is None
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
    world.run_until_progress("asking for 2 of 3 nodes: Kueue: insufficient unused quota")
    world.run_until_progress("asking for 1 of 3 nodes")
    assert world.ends() == Outcome(0)


@rules("too_few_nodes")
def test_an_elastic_job_whose_first_pod_finds_no_node_goes_on_with_fewer_nodes(make: Make) -> None:
    world = make(nodes=3, min_nodes=2)
    world.cluster.nodes_up["node-2"] = world.cluster.nodes_up["node-1"] = False
    world.run_until_progress("asking for 2 of 3 nodes: no node fits")
    world.cluster.nodes_up["node-1"] = True
    assert world.ends() == Outcome(0)


@BOTH
def test_a_job_is_preempted(make: Make, kind: JobKind) -> None:
    world = make(kind, queue="gpu")
    world.reaches(7)
    world.cluster.preempted.add(uid(world.cluster.created[world.job.name]))
    world.run_until_progress("queued: Kueue: Preempted to accommodate a workload")
    assert world.launcher.watch_for(600) is None
    world.cluster.preempted.clear()
    world.reaches(8)
    assert world.attempt.step <= 11, "nothing is done twice"
    assert world.ends() == Outcome(0)
