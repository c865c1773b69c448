"""Parts of the cluster that go away and come back: a node, the API server, the operators.

UNDERSTUDY_TEST_OUTAGES names a command that takes `stop NAME` and `start NAME` for the cluster's processes.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.launched import (
    BOTH,
    EVERY,
    NAMESPACE,
    SIGN,
    Launcher,
    kubectl,
    recipe,
    restart,
    wait,
    waits_for_a_sign,
)
from tests.cluster.volume import Volume
from understudy.runs.following import pending
from understudy.runs.orphans import list_jobs

TOOL = os.environ.get("UNDERSTUDY_TEST_OUTAGES") or None
NO_TOOL = "UNDERSTUDY_TEST_OUTAGES names no command that stops the cluster's processes"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.full,
    pytest.mark.skipif(TOOL is None, reason=NO_TOOL),
]
Launch = Callable[..., Launcher]
Recovered = Callable[[float], None]
STEPS_KEPT = "ls /var/lib/understudy/home/store/work/*/job/attempt.*/checkpoints"


@pytest.fixture
def stopped() -> Iterator[Callable[[str], Callable[[], None]]]:
    """Takes a process of the cluster away; the returned function brings it back, at the latest the test's end does."""
    away: list[str] = []

    def back(name: str) -> None:
        if name in away:
            away.remove(name)
            subprocess.run([str(TOOL), "start", name], check=True)

    def stop(name: str) -> Callable[[], None]:
        subprocess.run([str(TOOL), "stop", name], check=True)
        away.append(name)
        return lambda: back(name)

    yield stop
    while away:
        back(away[-1])
    wait(lambda: "ok" in kubectl("get", "--raw", "/readyz", check=False), 60)


@pytest.mark.parametrize("seconds", [5, 120], ids=["restarted", "away-for-two-minutes"])
def test_an_api_server_that_is_away(
    launch: Launch, undisturbed: str, stopped: Callable[[str], Callable[[], None]], seconds: float
) -> None:
    launcher = launch()
    launcher.reaches(5)
    bring_back = stopped("apiserver")
    time.sleep(seconds)
    bring_back()
    wait(lambda: "ok" in kubectl("get", "--raw", "/readyz", check=False), 60)
    assert launcher.ends() == 0, launcher.output()
    assert "the API server does not answer" in launcher.output()
    assert launcher.digest() == undisturbed


@BOTH
@pytest.mark.parametrize("number", [0, 1], ids=["of-the-rendezvous", "of-another-pod"])
def test_a_node_that_dies_and_comes_back(
    launch: Launch, recovered: Recovered, stopped: Callable[[str], Callable[[], None]], number: int
) -> None:
    wait(lambda: "node.kubernetes.io/" not in kubectl("get", "nodes", "-o", "jsonpath={..taints}"))
    launcher = launch(recipe(train={"steps": 1800}))
    launcher.reaches(25)
    nodes = [launcher.worker(which)["spec"]["nodeName"] for which in range(2)]
    assert len(set(nodes)) == 2, "ranks that are all on the dead node train on until they are fenced"
    node = nodes[number]
    bring_back = stopped(f"kubelet-{node}")
    began = time.time()
    launcher.says(f"node {node} does not answer; its pods are force-deleted", 150)
    before, after = wait(lambda: restart(launcher, began), 150)
    recovered(after["time"] - began)
    assert before["step"] - EVERY <= after["step"] - 1 <= before["step"], "at most one interval is done again"
    bring_back()
    assert launcher.ends(400) == 0, launcher.output()


@pytest.fixture
def given_up() -> Iterator[Callable[[str], None]]:
    """Says of a node that it will not come back, until the test's end."""
    taint, nodes = "node.kubernetes.io/out-of-service=gone:NoExecute", list[str]()

    def give_up(node: str) -> None:
        nodes.append(node)
        kubectl("taint", "node", node, taint)

    yield give_up
    for node in nodes:
        kubectl("taint", "node", node, f"{taint}-")


def on_the_second_node(pod: dict[str, Any]) -> None:
    on_gpu_1 = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-1"]}
    preferred = [{"weight": 100, "preference": {"matchExpressions": [on_gpu_1]}}]
    pod["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    soon = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    pod["tolerations"] += [{"key": f"node.kubernetes.io/{why}", **soon} for why in ("unreachable", "not-ready")]


def test_the_node_of_a_launcher_that_dies_for_good_is_named_and_another_takes_over_when_it_is_given_up(
    launch: Launch, stopped: Callable[[str], Callable[[], None]], given_up: Callable[[str], None]
) -> None:
    wait(lambda: "node.kubernetes.io/" not in kubectl("get", "nodes", "-o", "jsonpath={..taints}"))
    launcher = launch(recipe(train={"steps": 1800}), {}, on_the_second_node)  # it trains on while its launcher is away
    launcher.reaches(25)
    assert [pod["spec"]["nodeName"] for pod in launcher.pods()] == ["gpu-1"]
    bring_back = stopped("kubelet-gpu-1")
    state = wait(lambda: pending(launcher.pods()), 150)
    assert state.detail.startswith("node gpu-1 does not answer, and Kubernetes makes no other pod for the run")
    assert [job.stage for job in list_jobs(launcher.kube, time.time()) if job.name == launcher.name] == ["unreachable"]
    given_up("gpu-1")
    wait(lambda: any(pod["spec"].get("nodeName") not in (None, "gpu-1") for pod in launcher.pods()), 120)
    launcher.says("watching the job .*, which was submitted before", 120)
    assert launcher.ends(400) == 0, launcher.output()
    steps = [point["step"] for point in launcher.points()]
    assert max(steps.count(step) for step in steps) <= 2, "only its own worker's node was lost: one restart"
    bring_back()


@pytest.fixture
def scaled_down() -> Iterator[Callable[[str, str, str], Callable[[], None]]]:
    """Takes a deployment's pods away; the returned function brings them back, at the latest the test's end does."""
    away: list[tuple[str, str]] = []

    def back(deployment: tuple[str, str]) -> None:
        if deployment in away:
            away.remove(deployment)
            kubectl("scale", f"deployment/{deployment[0]}", "-n", deployment[1], "--replicas=1")

    def down(name: str, namespace: str, label: str) -> Callable[[], None]:
        kubectl("scale", f"deployment/{name}", "-n", namespace, "--replicas=0")
        away.append((name, namespace))
        kubectl("wait", "-n", namespace, "--for=delete", "pod", "-l", label, "--timeout=60s")
        return lambda: back((name, namespace))

    yield down
    while away:
        back(away[-1])


def test_an_operator_that_is_down_is_waited_for(
    launch: Launch, undisturbed: str, scaled_down: Callable[[str, str, str], Callable[[], None]]
) -> None:
    bring_back = scaled_down("training-operator", "kubeflow", "control-plane=kubeflow-training-operator")
    launcher = launch()
    launcher.says("the API server cannot answer now .*webhook")
    bring_back()
    assert launcher.ends() == 0, launcher.output()
    assert launcher.digest() == undisturbed


def test_a_queue_whose_controller_is_down_is_waited_for(
    launch: Launch,
    queue: dict[str, Any],
    volume: Volume,
    scaled_down: Callable[[str, str, str], Callable[[], None]],
) -> None:
    first = launch(recipe(cpu="500m", train={"steps": 300}), queue)
    second = launch(recipe(cpu="500m", seed=1, train={"steps": 20}), queue, waits_for_a_sign)
    first.reaches(15)
    bring_back = scaled_down("kueue-controller-manager", "kueue-system", "control-plane=controller-manager")
    volume.sh(f"touch {SIGN}")
    second.says("the API server cannot answer now .*webhook")
    before = max(point["step"] for point in first.points())
    first.reaches(before + 20)
    bring_back()
    assert [first.ends(), second.ends()] == [0, 0], first.output() + second.output()


class HostVolume(Volume):
    """A claim's files, seen from this machine, whose disk the nodes share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sh(self, command: str) -> str:
        text = command.replace("/var/lib/understudy", str(self.folder))
        return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False).stdout


@pytest.fixture
def small_volume(kube: Any) -> Iterator[HostVolume]:
    """A claim of its own with little room, named as its folder."""
    folder = Path(f"/var/lib/{NAMESPACE}-small")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=2777", "small", str(folder)], check=True)
    (folder / "home").mkdir(mode=0o777)
    (folder / "home").chmod(0o2777)
    shared = {"accessModes": ["ReadWriteMany"], "storageClassName": "small"}
    room = {"storage": "24Mi"}
    meta = {"apiVersion": "v1", "metadata": {"name": folder.name}}
    volume = {"hostPath": {"path": str(folder)}, "capacity": room, "persistentVolumeReclaimPolicy": "Retain"}
    claim = {"volumeName": folder.name, "resources": {"requests": room}}
    objects = [
        {**meta, "kind": "PersistentVolume", "spec": {**shared, **volume}},
        {**meta, "kind": "PersistentVolumeClaim", "spec": {**shared, **claim}},
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl("apply", "-f", "-", text=text)
    yield HostVolume(folder)
    kubectl("delete", "-f", "-", "--wait=false", text=text)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(b"0" * 4096)


def test_a_volume_that_is_full_ends_the_run_and_loses_nothing(launch: Launch, small_volume: HostVolume) -> None:
    settings = {"claim": small_volume.folder.name}
    first = launch(recipe(train={"steps": 200}), settings)
    first._volume = small_volume
    first.reaches(25)
    fill(small_volume.folder / "ballast")
    assert first.ends() == 1, first.output()
    assert re.search(r"(?i)no space left|disk is full|is full", first.output()), first.output()
    wait(lambda: not first.workers(), 60)
    (small_volume.folder / "ballast").unlink()
    last_checkpoint = max(int(step) for step in re.findall(r"step-(\d+)", small_volume.sh(STEPS_KEPT)))
    began = time.time()
    second = launch(recipe(train={"steps": 200}), settings)
    second._volume = small_volume
    assert second.ends() == 0, second.output()
    assert last_checkpoint >= 20
    points = [point for point in second.points() if point["time"] > began]
    assert points[0]["step"] - 1 == last_checkpoint, "it goes on where the last checkpoint is"
