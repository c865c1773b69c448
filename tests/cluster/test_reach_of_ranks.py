"""A rank pod's access to the volume, tried from inside it: attacks on files that others read, and a listing."""

import json
from collections.abc import Callable

import pytest

from tests.cluster.launched import BOTH, Launcher, kubectl, recipe, wait
from tests.cluster.volume import Volume

pytestmark = pytest.mark.cluster
STORE = "/var/lib/understudy/home/store"
WORK = f"{STORE}/work"


@BOTH
def test_a_rank_writes_into_its_own_work_alone_and_sees_no_other(
    launch: Callable[..., Launcher], volume: Volume, undisturbed: str
) -> None:
    volume.sh(f"mkdir -p {WORK}/another/job && echo secret > {WORK}/another/job/job.json")
    launcher = launch()
    launcher.reaches(10)
    pod = launcher.worker(1)
    key, [container] = pod["metadata"]["labels"]["understudy.key"], pod["spec"]["containers"]

    def rank(command: str) -> str:
        return kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", f"({command}) 2>&1", check=False)

    [work] = rank(f"ls {STORE}/work").split()
    assert work.startswith(key)
    job = json.loads(rank(f"cat {WORK}/{work}/job/job.json"))
    examples = job["payload"]["examples"]
    for folder in (examples, f"{STORE}/objects", f"{WORK}/{work}", f"{STORE}/runs", f"{STORE}/step-cache"):
        assert "cannot touch" in rank(f"mkdir -p {folder}; touch {folder}/planted"), folder
    assert "Read-only file system" in rank(f"cd {examples}; for file in *; do echo > $file; done")
    assert rank(f"ls -d {STORE}/objects/*/*").split() == [examples]
    assert rank(f"ls {STORE}/runs/{launcher.name}/logs").split() == ["teacher"]
    assert rank("cat /proc/mounts | grep -c /var/lib/understudy").strip() == str(
        sum(mount["name"] == "store" for mount in container["volumeMounts"])
    )
    assert not rank("env | grep -i -E 'mlflow|_token|secret|password|aws'")
    assert "No such file" in rank("ls /var/run/secrets/kubernetes.io")
    assert launcher.ends() == 0, launcher.output()
    assert launcher.digest() == undisturbed


@pytest.mark.parametrize("kind", ["pytorchjob", pytest.param("trainjob", marks=pytest.mark.full)], indirect=True)
def test_the_pod_that_evaluates_models_of_ranks_has_no_credentials(
    launch: Callable[..., Launcher], volume: Volume
) -> None:
    values = recipe(nodes=1, train={"steps": 3}, kwargs={"pause": 0.2})
    launcher = launch(values, last="evaluate")
    selector = f"understudy.run={launcher.name},understudy.step=evaluate"
    running = wait(
        lambda: [pod for pod in launcher.kube.pods(selector) if pod["status"]["phase"] == "Running"],
        describe=launcher.output,
    )
    [pod] = running

    def rank(command: str) -> str:
        return kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", f"({command}) 2>&1", check=False)

    [work] = rank(f"ls {STORE}/work").split()
    job = json.loads(rank(f"cat {WORK}/{work}/job/job.json"))
    read = [job["payload"]["examples"], *job["payload"]["models"].values()]
    assert sorted(rank(f"ls -d {STORE}/objects/*/*").split()) == sorted(read)
    for folder in (*read, f"{WORK}/{work}", f"{STORE}/runs", f"{STORE}/step-cache"):
        assert "cannot touch" in rank(f"mkdir -p {folder}; touch {folder}/planted"), folder
    assert not rank("env | grep -i -E 'mlflow|_token|secret|password|aws'")
    assert "No such file" in rank("ls /var/run/secrets/kubernetes.io")
    assert launcher.ends() == 0, launcher.output()
    assert "evaluate: done" in launcher.output()
