"""Launchers in a namespace of the cluster that KUBECONFIG names, each with one training of the teacher.

A launcher is a Job's pod that does a run's steps up to the teacher as the pipeline's tasks do them. Its image is
UNDERSTUDY_TEST_IMAGE, which holds this checkout at its path here, as the project's test cluster mounts it.
"""

import json
import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client.exceptions import ApiException

from tests import ROOT
from tests.cluster.volume import Volume
from understudy.kube.api import Kube, Unavailable
from understudy.kube.job_state import true_conditions
from understudy.kube.kind import KINDS, PYTORCHJOB, TRAINJOB, JobKind
from understudy.kube.objects import KubernetesObject
from understudy.kube.settings import Cluster
from understudy.recipe import Recipe
from understudy.runs import submission
from understudy.runs.following import exit_code

FAULTS = ROOT / "tests" / "ranks" / "faults"
IMAGE = os.environ.get("UNDERSTUDY_TEST_IMAGE", "registry.example.com/ml/understudy-trainer:0.1.0")
NAMESPACE = f"understudy-tests-{secrets.token_hex(3)}"
STEPS, EVERY, PAUSE = 120, 10, 0.1
LEASE = 8.0
LONG = 240.0
NOWHERE = "http://127.0.0.1:9"
SERVER = "mlflow-of-tests"
GAP = 3.0  # seconds without a report; there are two a second
SIGN = "/var/lib/understudy/home/go"
GRACE = 20  # seconds; of the recipe, and of the runtime of TrainJobs
NUMBER = {
    PYTORCHJOB.name: "training.kubeflow.org/replica-index",
    TRAINJOB.name: "batch.kubernetes.io/job-completion-index",
}
"""The label with a pod's number among its job's, by the job's kind."""
BOTH = pytest.mark.parametrize("kind", KINDS, indirect=True)
"""With a PyTorchJob, and with a TrainJob."""


def both(full: str) -> pytest.MarkDecorator:
    """With both kinds of jobs, of which one waits for the whole suite."""
    kinds = [pytest.param(kind, marks=pytest.mark.full) if kind == full else kind for kind in KINDS]
    return pytest.mark.parametrize("kind", kinds, indirect=True)


SETTINGS = {
    "image": IMAGE,
    "claim": "understudy-store",
    "service_account": "understudy-worker",
    "environment": {"PYTHONPATH": str(FAULTS)},
    "pools": {
        "gpu": {
            "node_selector": {"node-pool": "gpu"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "gpu": "nvidia.com/gpu",
        }
    },
}


def recipe(
    factory: str = "build", seed: int = 0, train: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """Digits for a teacher on two nodes that takes its time; `kwargs` are the factory's, the rest are its resources."""
    kwargs = changes.pop("kwargs", {"pause": PAUSE})
    resources = {
        "nodes": 2,
        "processes": 1,
        "pool": "gpu",
        "device": "cpu",
        "termination_grace_period": GRACE,
        **changes,
    }
    teacher = {"factory": f"slow_model:{factory}", "kwargs": kwargs}
    student = {"factory": "slow_model:build", "kwargs": {"width": 16}}
    settings = {"steps": STEPS, "batch_size": 16, "checkpoint_every": EVERY, "precision": "fp32", "strategy": "ddp"}
    return {
        "name": "faults",
        "seed": seed,
        "task": "image-classification",
        "data": {"source": {"type": "digits"}, "image": {"size": 8, "channels": 1}},
        "teacher": {"model": teacher, "train": {**settings, **(train or {})}},
        "student": {"model": student, "train": {"steps": 2}, "control": False},
        "resources": {"teacher": resources, "distill": {"termination_grace_period": GRACE}},
    }


def kubectl(*arguments: str, check: bool = True, text: str | None = None) -> str:
    """What kubectl says, in the namespace of the tests."""
    done = subprocess.run(
        ["kubectl", "-n", NAMESPACE, *arguments], input=text, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def wait(condition: Callable[[], Any], seconds: float = LONG, describe: Callable[[], str] = str) -> Any:
    """The condition's first true value; `seen` says what there is instead when the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(Unavailable):
            if value := condition():
                return value
        time.sleep(0.3)
    raise AssertionError(f"not within {seconds} s: {condition}\n{describe()}")


FOR_THE_CLUSTER = ("understudy-nodes", "understudy-token-reviews")
"""The manifests' resources that every copy needs under a name of its own."""


def overlay(namespace: str, folder: Path) -> str:
    """The overlay dev for a namespace of its own, as docs/operating/cluster.md has it, with the tests' image.

    Args:
        namespace: a name that nobody else uses: a cluster may have an understudy of somebody's.
        folder: an empty one, for the kustomization.
    """
    patches = [
        {
            "target": {"kind": "ClusterRoleBinding", "name": name},
            "options": {"allowNameChange": True},
            "patch": yaml.safe_dump([{"op": "replace", "path": "/metadata/name", "value": f"{namespace}-{name}"}]),
        }
        for name in FOR_THE_CLUSTER
    ]
    kustomization = {
        "namespace": namespace,
        "resources": [os.path.relpath(ROOT / "manifests" / "overlays" / "dev", folder.resolve())],
        "patches": patches,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return re.sub(r"registry\.example\.com/ml/understudy-\w+:[\w.]+", IMAGE, kubectl("kustomize", str(folder)))


class Launcher:
    """A run in the cluster: its Job, its jobs, its words, its files."""

    def __init__(self, kube: Kube, name: str, volume: Volume, kind: JobKind = PYTORCHJOB) -> None:
        self.kube, self.name, self._volume, self.kind = kube, name, volume, kind
        self._points: list[dict[str, Any]] = []
        self._key = ""  # of its teacher, once there is a job

    @property
    def job(self) -> str | None:
        """The training job's name, once there is one."""
        jobs = self.kube.jobs(self.kind, f"understudy.run={self.name}")
        return str(jobs[-1]["metadata"]["name"]) if jobs else None

    def workers(self) -> list[KubernetesObject]:
        """The job's pods that have not ended; those of a TrainJob stay for as long as it does."""
        pods = self.kube.pods(f"understudy.run={self.name},app.kubernetes.io/component=training")
        return [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]

    def worker(self, number: int) -> KubernetesObject:
        """The pod of one of the job's nodes; the first one hosts the rendezvous."""
        label = NUMBER[self.kind.name]
        return next(pod for pod in self.workers() if pod["metadata"]["labels"].get(label) == str(number))

    def holds(self, condition: str) -> bool:
        """Whether the job has a condition."""
        return condition in true_conditions(self.kube.job(self.kind, self.job or "") or {})

    def pods(self) -> list[KubernetesObject]:
        """The launcher's own pods."""
        return self.kube.pods(f"batch.kubernetes.io/job-name={self.name}")

    def output(self) -> str:
        """All that its pods have said."""
        return "".join(self._log(pod["metadata"]["name"]) for pod in self.pods())

    def _log(self, pod: str) -> str:
        """A pod's log; empty before the pod begins and after it is gone."""
        with suppress(ApiException):
            answer = self.kube.core.read_namespaced_pod_log(pod, NAMESPACE, _preload_content=False)
            return str(answer.data.decode())
        return ""

    def says(self, pattern: str, seconds: float = LONG) -> str:
        """Wait until it has said something."""
        match = wait(lambda: re.search(pattern, self.output()), seconds, lambda: f"{pattern}\n{self.output()}")
        return str(match[0])

    def points(self) -> list[dict[str, Any]]:
        """The curve's points, as ranks have reported them, those after a restart once more; kept when the work goes."""
        jobs = self.kube.jobs(self.kind, f"understudy.run={self.name}")
        self._key = self._key or next((job["metadata"]["labels"]["understudy.key"] for job in jobs), "")
        text = self._volume.cat(f"store/work/{self._key}*/job/metrics.jsonl") if self._key else ""
        self._points = [json.loads(line) for line in text.splitlines() if line.endswith("}")] or self._points
        return self._points

    def reaches(self, step: int) -> None:
        """Wait until the training is so far."""
        wait(
            lambda: any(point["step"] >= step for point in self.points()) or self._code() is not None,
            describe=self.output,
        )
        assert self._code() is None, self.output()

    def last_checkpoint(self) -> int:
        """The step of the last checkpoint that is complete."""
        names = self._volume.sh(f"ls /var/lib/understudy/home/store/work/{self._key}*/job/attempt.*/checkpoints")
        return max((int(step) for step in re.findall(r"^step-(\d+)$", names, re.MULTILINE)), default=0)

    def ended(self) -> int | None:
        """The exit code, when it has ended; its points are kept before its work goes."""
        self.points()
        return self._code()

    def _code(self) -> int | None:
        job = self.kube.call(self.kube.batch.read_namespaced_job, self.name, NAMESPACE)
        return exit_code(job, self.pods()) if job else None

    def ends(self, seconds: float = LONG) -> int:
        """Wait for the exit code."""
        return int(wait(lambda: None if (code := self.ended()) is None else str(code), seconds, self.output))

    def digest(self) -> str:
        """The teacher's digest."""
        return self.says(r"(?<=teacher )[0-9a-f]{64}", 20)


def rendered(
    name: str, values: dict[str, Any], cluster: Cluster, last: str = "teacher"
) -> tuple[KubernetesObject, KubernetesObject]:
    """The ConfigMap and the Job of a launcher for a recipe's steps up to the last one."""
    pool = submission.driver_pool(cluster, Recipe.model_validate(values))
    job = submission.render(name, cluster.model_copy(update={"image": IMAGE}), pool)
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["command"] = [
        "python",
        str(FAULTS / "alone.py"),
        "/etc/understudy-run/recipe.yaml",
        last,
        str(LEASE),
    ]
    container["env"] += [
        {"name": "PYTHONPATH", "value": str(FAULTS)},
        {"name": "MLFLOW_TRACKING_URI", "value": NOWHERE},
    ]
    container["resources"] = {}
    for volume in job["spec"]["template"]["spec"]["volumes"]:
        if volume["name"] == "settings":
            volume["configMap"]["name"] = name
    maps = {"recipe.yaml": yaml.safe_dump(values), "cluster.yaml": yaml.safe_dump(cluster.model_dump(mode="json"))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": maps}, job


def start(
    name: str,
    values: dict[str, Any],
    cluster: Cluster,
    change: Callable[[dict[str, Any]], None] = lambda pod: None,
    last: str = "teacher",
) -> None:
    """Start a launcher for a recipe's steps up to the last one; `change` gets its pod's spec before."""
    pod_object, job = rendered(name, values, cluster, last)
    change(job["spec"]["template"]["spec"])
    kubectl("apply", "-f", "-", text=json.dumps(pod_object))
    kubectl("apply", "-f", "-", text=json.dumps(job))


def restart(launcher: Launcher, since: float) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The last point before a training was interrupted, and the first one after: seconds lie between them.

    One that only stood still for a while goes on further than with the next step.
    """
    for before, after in pairwise(sorted(launcher.points(), key=lambda point: float(point["time"]))):
        if after["time"] > since and after["time"] - before["time"] > GAP and after["step"] <= before["step"] + 1:
            return before, after
    return None


def waits_for_a_sign(pod: dict[str, Any]) -> None:
    """Has a launcher's pod begin only when the file SIGN is on the volume: the time of its start is over then."""
    container = pod["containers"][0]
    wait_first = f'until [ -e {SIGN} ]; do sleep 0.2; done; exec "$@"'
    container["command"] = ["sh", "-c", wait_first, "sh", *container["command"]]


def mlflow_answer(volume: Volume, path: str) -> Any:
    """The answer of the tests' MLflow server."""
    code = f"import urllib.request as r; print(r.urlopen('http://{SERVER}:5000/api/2.0/mlflow/{path}').read().decode())"
    return json.loads(wait(lambda: volume.sh(f'python -c "{code}" 2>/dev/null'), 30, lambda: path))
