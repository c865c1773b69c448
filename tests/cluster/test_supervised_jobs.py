"""Faults of a training in a cluster: messages to the user, lost work, and a result that is bit for bit the same."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.launched import (
    BOTH,
    EVERY,
    GRACE,
    NAMESPACE,
    SETTINGS,
    Launcher,
    both,
    kubectl,
    recipe,
    restart,
    wait,
)
from tests.cluster.volume import Volume
from understudy import __version__
from understudy.errors import InputError, UnderstudyError
from understudy.kube.api import Kube
from understudy.kube.kind import JobKind
from understudy.kube.settings import CONFIG, parsed
from understudy.recipe import Recipe
from understudy.runs import submission
from understudy.runs.following import follow

pytestmark = pytest.mark.cluster
Launch = Callable[..., Launcher]
Recovered = Callable[[float], None]


def delete(pod: str) -> None:
    kubectl("delete", "pod", pod, "--wait=false")


def recovers(launcher: Launcher, disturb: Callable[[], Any], recovered: Recovered) -> None:
    """Disturb a training; the work after its last checkpoint is done again, and it ends well."""
    launcher.reaches(25)
    last_checkpoint, began = launcher.last_checkpoint(), time.time()
    disturb()
    before, after = wait(lambda: restart(launcher, began))
    recovered(after["time"] - began)
    assert max(last_checkpoint, before["step"] - 2 * EVERY) <= after["step"] - 1 <= before["step"], (
        "it goes on where the last checkpoint is"
    )
    assert launcher.ends() == 0, launcher.output()


WORDS = ("running: on gpu-", r"rank 0\] ", r"rank 1\] ", r"running: \d+/120 steps  loss .* images/s, \d+ (s|min) left")


def test_every_rank_of_an_undisturbed_job_is_heard(heard: str) -> None:
    assert [pattern for pattern in WORDS if not re.search(pattern, heard)] == []


@pytest.mark.full
@pytest.mark.parametrize("kind", ["trainjob"], indirect=True)
def test_an_undisturbed_train_job_is_heard_too_and_has_the_same_bits(launch: Launch, undisturbed: str) -> None:
    launcher = launch()
    assert launcher.ends() == 0, launcher.output()
    assert launcher.digest() == undisturbed, "whoever runs it"
    for pattern in WORDS:
        launcher.says(pattern, 20)


@both(full="trainjob")
@pytest.mark.parametrize("index", [pytest.param(0, marks=pytest.mark.full), 1], ids=["rendezvous", "other"])
def test_a_deleted_worker_pod(launch: Launch, undisturbed: str, recovered: Recovered, index: int) -> None:
    launcher = launch()
    recovers(launcher, lambda: delete(launcher.worker(index)["metadata"]["name"]), recovered)
    assert launcher.digest() == undisturbed


@both(full="pytorchjob")
def test_a_killed_rank(launch: Launch, undisturbed: str, recovered: Recovered) -> None:
    launcher = launch()
    kill = [
        "sh",
        "-c",
        "kill -9 $(pgrep -f understudy.agent.worker | head -n 1)",
    ]  # its pod may end before it has answered

    def disturb() -> None:
        kubectl("exec", launcher.worker(1)["metadata"]["name"], "--", *kill, check=False)

    recovers(launcher, disturb, recovered)
    assert launcher.digest() == undisturbed
    launcher.says("ended with signal SIGKILL", 20)


@both(full="trainjob")
def test_a_deleted_launcher_leaves_its_job_to_its_successor(launch: Launch, undisturbed: str) -> None:
    launcher = launch()
    launcher.reaches(15)
    job = launcher.job
    delete(launcher.pods()[0]["metadata"]["name"])
    assert launcher.ends() == 0, launcher.output()
    assert launcher.digest() == undisturbed
    launcher.says(f"watching the job {job}, which was submitted before", 20)
    steps = [point["step"] for point in launcher.points()]
    assert len(steps) == len(set(steps))


@both(full="pytorchjob")
def test_a_cancelled_run_takes_its_job_along(launch: Launch) -> None:
    launcher = launch()
    launcher.reaches(15)
    kubectl("delete", "job", launcher.name, "--wait=false")
    wait(lambda: not launcher.workers() and launcher.job is None, 90)


def in_a_shared_process_namespace(pod: dict[str, Any]) -> None:
    """Has a launcher not be its pod's first process, which nobody in the pod can kill."""
    pod["shareProcessNamespace"] = True


def vanishes(launcher: Launcher) -> None:
    """Kill a launcher for good: asked to end, it would see that its run is gone, and end the job itself."""
    [pod] = launcher.pods()
    kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", "kill -9 -1", check=False)
    kubectl("delete", "job", launcher.name, "--cascade=orphan")
    delete(pod["metadata"]["name"])


@both(full="pytorchjob")
def test_a_job_that_nobody_watches_takes_a_checkpoint_and_ends(launch: Launch, volume: Volume) -> None:
    launcher = launch(recipe(train={"steps": 2000}), {"launcher_timeout": 12}, in_a_shared_process_namespace)
    launcher.reaches(15)
    vanishes(launcher)
    wait(lambda: not launcher.workers(), 90)
    wait(lambda: launcher.holds("Failed"), 30)
    last = max(point["step"] for point in launcher.points())
    assert f"step-{last}" in volume.sh("ls /var/lib/understudy/home/store/work/*/job/attempt.*/checkpoints")


@pytest.mark.full
def test_ranks_that_wait_for_a_node_end_too_when_nobody_watches(launch: Launch) -> None:
    values = recipe(nodes=3, cpu="1500m", train={"batch_size": 18})
    launcher = launch(values, {"launcher_timeout": 12}, in_a_shared_process_namespace)
    launcher.says("pending: no node fits .*: .*Insufficient cpu")
    wait(lambda: [pod["status"]["phase"] for pod in launcher.workers()].count("Running") == 2)
    vanishes(launcher)
    wait(lambda: not launcher.workers(), 90)
    wait(lambda: launcher.holds("Failed"), 30)


@both(full="trainjob")
def test_a_users_mistake_is_reported_with_rank_and_last_lines(launch: Launch) -> None:
    launcher = launch(recipe("raises", kwargs={}))
    assert launcher.ends() == 1
    for pattern in ("no weights for 10 labels", "the last lines of rank", "RuntimeError"):
        launcher.says(pattern, 20)
    wait(lambda: not launcher.workers(), 60)


@pytest.mark.parametrize("kind", ["trainjob"], indirect=True)
def test_missing_parts_for_train_jobs_are_named_before_anything_is_submitted(kube: Kube, kind: JobKind) -> None:
    del kind
    settings = parsed({**SETTINGS, "launcher": "trainjob"}, "test")

    def check(namespace: Kube, **resources: Any) -> None:
        values = recipe(**resources)
        values["resources"]["distill"] = {"termination_grace_period": GRACE}
        submission.check(namespace, settings, Recipe.model_validate(values))

    check(kube)
    for namespace, resources, message in (
        (Kube("kube-system"), {}, "namespace kube-system: there is no TrainingRuntime understudy"),
        (kube, {"min_nodes": 1}, r"resources\.teacher\.min_nodes: 1; a TrainJob has a fixed number of nodes"),
        (kube, {"priority": "high"}, r"resources\.teacher\.priority: high; "),
        (kube, {"termination_grace_period": 600}, rf"termination_grace_period: 600; .* gives a pod {GRACE} s"),
    ):
        with pytest.raises(InputError, match=message):
            check(namespace, **resources)


def of_another_version(pod: dict[str, Any]) -> None:
    pod["containers"][0]["env"].append({"name": "VERSION", "value": "9.9.9"})


@BOTH
@pytest.mark.full
def test_an_image_of_another_version_refuses_the_job(launch: Launch) -> None:
    launcher = launch(change=of_another_version)
    assert launcher.ends() == 1
    assert f"the job was written by understudy 9.9.9, this image has {__version__}" in launcher.output()


@BOTH
@pytest.mark.full
def test_an_image_that_cannot_be_pulled(launch: Launch) -> None:
    launcher = launch(settings={"image": "registry.invalid/none:1"})
    launcher.says("image registry.invalid/none:1 cannot be pulled")
    assert launcher.ends() == 1
    wait(lambda: not launcher.workers(), 60)


@pytest.mark.full
def test_a_run_whose_own_image_cannot_be_pulled_is_ended(kube: Kube) -> None:
    cluster = parsed({**SETTINGS, "image": "registry.example.com/ml/nothing:1"}, "test")
    empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG}}
    kubectl("apply", "-f", "-", text=json.dumps(empty))
    name = submission.submit(kube, cluster, Recipe.model_validate(recipe()))
    lines: list[str] = []
    with pytest.raises(UnderstudyError, match=r"was ended, its pod cannot start: image .*nothing:1 cannot be pulled"):
        follow(kube, name, lines.append)
    assert any("cannot be pulled" in line for line in lines)
    wait(lambda: not kube.pods(f"batch.kubernetes.io/job-name={name}"), 60)


@pytest.mark.full
def test_a_run_whose_pod_is_refused_is_ended(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "ACCOUNT", "no-such-account")
    name = submission.submit(kube, parsed(SETTINGS, "test"), Recipe.model_validate(recipe()))
    lines: list[str] = []
    with pytest.raises(UnderstudyError, match=r'was ended, its pod cannot start: .*"no-such-account" not found'):
        follow(kube, name, lines.append)
    assert any("not found" in line for line in lines)
    assert kube.call(kube.batch.read_namespaced_job, name, kube.namespace) is None


@pytest.mark.full
def test_a_missing_volume_is_reported(launch: Launch) -> None:
    launcher = launch(settings={"cache": {"csi": {"driver": "no-such-driver.example.com"}}})
    launcher.says("pulling: .*-worker-. does not start yet: MountVolume.*no-such-driver.example.com not found")


@BOTH
@pytest.mark.full
def test_more_gpus_than_any_node_has(launch: Launch) -> None:
    launcher = launch(recipe(processes=8, device="cuda", train={"batch_size": 16}))
    launcher.says("Insufficient nvidia.com/gpu")
    assert launcher.ends() == 1
    assert "this can never be scheduled: a pod asks for 8 nvidia.com/gpu, and the largest node" in launcher.output()


@pytest.mark.full
def test_pods_that_the_cluster_refuses(launch: Launch) -> None:
    launcher = launch(recipe(priority="no-such-class"))
    assert launcher.ends() == 1
    assert "the cluster refuses the job's pods: " in launcher.output()
    assert "no-such-class" in launcher.output()


@BOTH
@pytest.mark.full
def test_a_rank_that_hangs(launch: Launch, volume: Volume) -> None:
    launcher = launch(recipe("hangs", kwargs={"at": 25, "rank": 1, "sign": "hung"}, hang_timeout=20))
    launcher.says(r"no rank has made progress for \d+ s \(rank 0 on gpu-\d: training, step 2\d; rank 1")
    logs = f"store/runs/{launcher.name}/logs"
    assert "in fault" in volume.cat(f"{logs}/teacher/stacks-1.txt"), "it sleeps there"
    waits = json.loads(volume.cat(f"{logs}/teacher/collectives-0.json"))["gloo"]["entries"]
    assert {entry["profiling_name"] for entry in waits} >= {"gloo:all_reduce"}, "the other one waits for it"
    assert launcher.ends() == 0, launcher.output()


@BOTH
@pytest.mark.full
def test_a_rank_that_takes_more_memory_than_its_pod_may(launch: Launch) -> None:
    sign = "/tmp/greedy"  # of the pod: it would do the same again
    launcher = launch(recipe("greedy", kwargs={"at": 25, "rank": 1, "sign": sign}, memory="1500Mi"))
    assert launcher.ends() == 1
    assert "OOMKilled" in launcher.output()
    assert "Raise resources.teacher.memory" in launcher.output()
    wait(lambda: not launcher.workers(), 60)


def understudy(*arguments: str) -> str:
    command = [sys.executable, "-m", "understudy", *arguments, "-n", NAMESPACE]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@BOTH
@pytest.mark.full
def test_a_run_that_is_stopped_takes_a_checkpoint_first(launch: Launch, volume: Volume) -> None:
    launcher = launch(recipe(train={"steps": 2000}))
    launcher.reaches(15)
    assert any(line.startswith(launcher.name) for line in understudy("jobs", "ls").splitlines())
    understudy("jobs", "stop", launcher.name)
    wait(lambda: not launcher.workers() and launcher.job is None, 60)
    last = max(point["step"] for point in launcher.points())
    assert f"step-{last}\n" in volume.sh("ls /var/lib/understudy/home/store/work/*/job/attempt.*/checkpoints")


@BOTH
@pytest.mark.full
def test_jobs_of_a_terminated_run_are_found_and_ended(launch: Launch) -> None:
    launcher = launch(recipe(train={"steps": 2000}))
    launcher.reaches(15)
    kubectl("patch", "job", launcher.name, "-p", '{"spec": {"activeDeadlineSeconds": 0}}')  # as KFP terminates a run
    wait(lambda: not [pod for pod in launcher.pods() if pod["status"]["phase"] == "Running"], 60)
    assert launcher.workers()
    assert f"{launcher.job}: Job {launcher.name} was terminated" in understudy("jobs", "gc", "--yes")
    wait(lambda: not launcher.workers(), 60)


@pytest.fixture
def cordoned() -> Iterator[Callable[[str], None]]:
    """Keeps new pods from a node, until it is called for or the test ends."""
    names: list[str] = []

    def cordon(name: str) -> None:
        kubectl("cordon", name)
        names.append(name)

    yield cordon
    for name in names:
        kubectl("uncordon", name)


def running(launcher: Launcher) -> int:
    return len([pod for pod in launcher.workers() if pod["status"]["phase"] == "Running"])


@pytest.mark.full
def test_an_elastic_job_goes_on_without_a_lost_node(launch: Launch, cordoned: Callable[[str], None]) -> None:
    launcher = launch(recipe(min_nodes=1, cpu="1200m", train={"steps": 300}))
    launcher.reaches(25)
    pod = launcher.worker(1)
    began = time.time()
    cordoned(pod["spec"]["nodeName"])
    delete(pod["metadata"]["name"])
    before, after = wait(lambda: restart(launcher, began))
    assert before["step"] - EVERY <= after["step"] - 1 <= before["step"], "at most one interval is done again"
    assert running(launcher) == 1
    assert launcher.ends() == 0, launcher.output()


@pytest.mark.full
def test_an_elastic_job_begins_on_the_available_nodes_and_takes_new_ones(
    launch: Launch, cordoned: Callable[[str], None]
) -> None:
    cordoned("gpu-1")
    launcher = launch(recipe(min_nodes=1, cpu="1200m", train={"steps": 900}))
    launcher.reaches(25)
    assert running(launcher) == 1
    began = time.time()
    kubectl("uncordon", "gpu-1")
    before, after = wait(lambda: restart(launcher, began))
    assert before["step"] - EVERY <= after["step"] - 1 <= before["step"], "at most one interval is done again"
    assert running(launcher) == 2
    assert launcher.ends() == 0, launcher.output()
