"""Runs of the command itself in a cluster: following one from outside, and stopping it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
import yaml

from tests.cluster.launched import FAULTS, NAMESPACE, SERVER, SETTINGS, Launcher, kubectl, mlflow_answer, recipe, wait
from tests.cluster.volume import Volume
from understudy.errors import STOPPED
from understudy.kube.api import Kube
from understudy.kube.identity import RUN
from understudy.kube.settings import CONFIG, ENVIRONMENT
from understudy.runs.following import follow

pytestmark = pytest.mark.cluster


@pytest.fixture
def settings(kube: Kube) -> Iterator[None]:
    """The namespace's settings for runs of the command itself, which report to the tests' MLflow server."""
    environment = {"MLFLOW_TRACKING_URI": f"http://{SERVER}:5000", "PYTHONPATH": str(FAULTS)}
    for name, data in ((CONFIG, {"cluster.yaml": yaml.safe_dump(SETTINGS)}), (ENVIRONMENT, environment)):
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        kubectl("apply", "-f", "-", text=json.dumps(config_map))
    yield
    kubectl("delete", "configmap", CONFIG, ENVIRONMENT)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "understudy", *arguments, "-n", NAMESPACE]


@pytest.fixture
def following(settings: None, tmp_path: Path, kube: Kube) -> Iterator[subprocess.Popen[str]]:
    """The command, which follows a run that takes its time; both end with the test."""
    del settings
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe(train={"steps": 5000})))
    run = command("run", str(tmp_path / "recipe.yaml"), "--on", "cluster")
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()
    kubectl("delete", "jobs,pytorchjobs", "-l", RUN, "--wait=false")
    wait(lambda: not kube.pods(RUN), 90)


def started_run(following: subprocess.Popen[str], kube: Kube, volume: Volume) -> Launcher:
    """The run that is followed."""
    assert following.stdout is not None
    for line in following.stdout:
        if line.startswith("run "):
            return Launcher(kube, line.split()[1], volume)
    raise AssertionError(following.communicate()[1])


def further(launcher: Launcher) -> None:
    launcher.reaches(max((point["step"] for point in launcher.points()), default=0) + 20)


def statuses(launcher: Launcher, volume: Volume) -> set[str]:
    """What MLflow says of a run and its teacher."""
    paths = (f"store/runs/{launcher.name}/{part}.json" for part in ("mlflow", "mlflow/teacher"))
    ids = [json.loads(wait(lambda path=path: volume.cat(path), 60))["run_id"] for path in paths]
    return {mlflow_answer(volume, f"runs/get?run_id={run_id}")["run"]["info"]["status"] for run_id in ids}


@pytest.mark.full
def test_a_run_outlives_its_follower_and_its_pod_and_one_that_is_stopped_is_over_in_mlflow_too(
    kube: Kube, server: Callable[[int], None], volume: Volume, following: subprocess.Popen[str]
) -> None:
    del server
    launcher = started_run(following, kube, volume)
    further(launcher)

    following.terminate()
    assert f"the run continues; understudy jobs stop {launcher.name}" in following.communicate(timeout=60)[1]
    assert following.returncode == STOPPED

    (pod,) = launcher.pods()
    kubectl("delete", "pod", pod["metadata"]["name"])
    launcher.says("watching the job .*, which was submitted before")
    assert not re.search("teacher +failed", launcher.output()), "it did not; only its launcher had to go"
    further(launcher)
    wait(lambda: statuses(launcher, volume) == {"RUNNING"}, 30)

    lines: list[str] = []
    ended: list[int] = []
    follower = Kube(NAMESPACE)
    Thread(target=lambda: ended.append(follow(follower, launcher.name, lines.append)), daemon=True).start()
    wait(lambda: lines, 60)
    subprocess.run(command("jobs", "stop", launcher.name), check=True)
    assert wait(lambda: ended, 120) == [STOPPED]
    assert lines[-1].startswith(f"the run {launcher.name} was stopped; finished steps and checkpoints are kept")
    wait(lambda: statuses(launcher, volume) == {"KILLED"}, 60)
    assert json.loads(volume.cat(f"store/runs/{launcher.name}/ended.json"))["exit_code"] == STOPPED
