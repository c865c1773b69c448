"""Parts of the cluster that go away and come back: a node, the API server, the operators.

UNDERSTUDY_TEST_OUTAGES names a command that takes `stop NAME` and `start NAME` for the cluster's processes.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from launched import EVERY, Launcher, kubectl, recipe, restart, wait

TOOL = os.environ.get("UNDERSTUDY_TEST_OUTAGES")
NO_TOOL = "UNDERSTUDY_TEST_OUTAGES names no command that stops the cluster's processes"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.outage,
    pytest.mark.skipif(TOOL is None, reason=NO_TOOL),
]
Launch = Callable[..., Launcher]
Recovered = Callable[[float], None]


@pytest.fixture
def stopped() -> Iterator[Callable[[str], Callable[[], None]]]:
    """Takes a process of the cluster away; what it returns brings it back, at the latest the test's end does."""
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
    for name in away:
        back(name)
    wait(lambda: "ok" in kubectl("get", "--raw", "/readyz", check=False), 60)


def test_an_api_server_that_is_away_for_two_minutes(
    launch: Launch, undisturbed: str, stopped: Callable[[str], Callable[[], None]]
) -> None:
    launcher = launch()
    launcher.reaches(5)
    bring_back = stopped("apiserver")
    time.sleep(120)
    bring_back()
    wait(lambda: "ok" in kubectl("get", "--raw", "/readyz", check=False), 60)
    assert launcher.ends() == 0, launcher.said()
    assert "the API server does not answer" in launcher.said()
    assert launcher.digest() == undisturbed


def test_a_node_that_dies_and_comes_back(
    launch: Launch, recovered: Recovered, stopped: Callable[[str], Callable[[], None]]
) -> None:
    launcher = launch(recipe(train={"steps": 1800}))
    launcher.reaches(25)
    bring_back = stopped("kubelet-gpu-1")
    began = time.time()
    launcher.says("node gpu-1 does not answer; its pods are given up", 150)
    before, after = wait(lambda: restart(launcher, began), 150)
    recovered(after["time"] - began)
    assert before["step"] - EVERY <= after["step"] - 1 <= before["step"], "at most one interval is done again"
    bring_back()
    assert launcher.ends(400) == 0, launcher.said()


def test_an_operator_that_is_down_is_waited_for(launch: Launch, undisturbed: str) -> None:
    operator = ["deployment/training-operator", "-n", "kubeflow"]
    kubectl("scale", *operator, "--replicas=0")
    kubectl("wait", "-n", "kubeflow", "--for=delete", "pod", "-l", "control-plane=kubeflow-training-operator")
    try:
        launcher = launch()
        launcher.says("the API server cannot answer now .*webhook", 60)
    finally:
        kubectl("scale", *operator, "--replicas=1")
    assert launcher.ends() == 0, launcher.said()
    assert launcher.digest() == undisturbed
