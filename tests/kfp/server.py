"""A KFP server as somebody uses it: runs made as from the form of its page, and followed as `submit --wait` does."""

import json
import os
import re
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import Request, urlopen

from tests import ROOT
from tests.unit.manifests.test_kubeflow import overlay
from understudy.pipelines import submission
from understudy.pipelines.compiled import write
from understudy.recipe.file import load

HOST, PAGES = os.environ.get("KFP_HOST", ""), os.environ.get("KFP_UI", "")
IMAGES = "registry.example.com/ml/understudy:0.1.0"
NAMESPACE = "kubeflow"
SHORT = ["teacher.train.epochs=4", "student.train.epochs=4", "gate.margin=0.9", "gate.max_latency_ratio=null"]
SHORT += ["student.distill=[{type: labels, weight: 0.999}, {type: logits, weight: 0.001}]"]
"""Digits, trained for seconds, with a gate that this passes with any seed, since the student learns nearly what its
control does; no test is about how good it is."""
SEED = secrets.randbelow(2**31)
"""So that no earlier walk has made its results."""
Found = TypeVar("Found")


def kubectl(*arguments: str, namespace: str = NAMESPACE, stdin: str | None = None) -> str:
    command = ["kubectl", "-n", namespace, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply(folder: Path, namespace: str = NAMESPACE) -> None:
    """The overlay that the docs have for a namespace, until MLflow runs there."""
    objects = {"apiVersion": "v1", "kind": "List", "items": overlay(namespace, folder)}
    options = {"namespace": namespace}
    kubectl("delete", "job", "understudy-prepare-store", "--ignore-not-found", **options)
    kubectl("apply", "--server-side", "-f", "-", **options, stdin=json.dumps(objects))
    kubectl("wait", "--for=condition=complete", "job/understudy-prepare-store", "--timeout=180s", **options)
    kubectl("rollout", "status", "deployment/mlflow", "--timeout=300s", **options)


@contextmanager
def forwarded(namespace: str = NAMESPACE) -> Iterator[str]:
    """MLflow's address on this machine, as somebody has it who may look into the cluster."""
    command = ["kubectl", "-n", namespace, "port-forward", "service/mlflow", ":5000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout
        yield f"http://{forward.stdout.readline().split()[2]}"
        forward.terminate()


def opened(namespace: str, account: str) -> str:
    """The API server's answer to a NetworkPolicy with which an account would open every pod to every peer."""
    spec = {"podSelector": {}, "ingress": [{}], "policyTypes": ["Ingress"]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "open"}, "spec": spec}
    command = ["kubectl", "-n", namespace, f"--as=system:serviceaccount:{namespace}:{account}"]
    command += ["create", "--dry-run=server", "-f", "-"]
    done = subprocess.run(command, input=json.dumps(policy), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def wait(look: Callable[[], Found], seconds: float = 600) -> Found:
    """The first true result of a function."""
    end = time.time() + seconds
    while not (result := look()):
        assert time.time() < end, f"not within {seconds} s"
        time.sleep(1)
    return result


@dataclass
class Run:
    """A run on the server."""

    id: str
    messages: list[str] = field(default_factory=list)

    def end(self) -> int:
        """Follow it; 0 or 1."""
        return submission.follow(server(), self.id, self.messages.append)

    def do(self, verb: str) -> None:
        """Press a button of its page: terminate, retry."""
        urlopen(Request(f"{HOST}/apis/v2beta1/runs/{self.id}:{verb}", method="POST"), timeout=30).close()

    def delete(self) -> None:
        """Delete it, as the list of runs does."""
        urlopen(Request(f"{HOST}/apis/v2beta1/runs/{self.id}", method="DELETE"), timeout=30).close()

    @property
    def workflow(self) -> dict[str, Any]:
        (workflow,) = json.loads(kubectl("get", "workflows", "-l", f"pipeline/runid={self.id}", "-o", "json"))["items"]
        return dict(workflow)

    @property
    def tasks(self) -> list[str]:
        """The tasks that had a pod of their own; Argo may have tried one again (docs/operating/kfp.md)."""
        nodes = self.workflow["status"]["nodes"].values()
        names = [re.sub(r"\(\d+\)", "", node["name"]).split(".") for node in nodes if node["type"] == "Pod"]
        return sorted({parts[2] for parts in names if parts[-1] == "executor"})

    @property
    def jobs(self) -> list[str]:
        """Its PyTorchJobs, by their uids."""
        jobs = kubectl("get", "pytorchjobs", "-l", f"understudy.run={self.id}", "-o", "json")
        return [job["metadata"]["uid"] for job in json.loads(jobs)["items"]]

    def pods(self, task: str, phase: str = "Running") -> list[str]:
        """The pods in which a task runs now, or that are in another phase."""
        pods = json.loads(kubectl("get", "pods", "-l", f"pipeline/runid={self.id}", "-o", "json"))["items"]
        names = {
            pod["metadata"]["name"]: pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"]
            for pod in pods
            if pod["status"]["phase"] == phase and "deletionTimestamp" not in pod["metadata"]
        }
        return [name for name, node in names.items() if f".{task}(" in node and "executor" in node]

    @property
    def steps(self) -> list[int]:
        """How far the teacher's training was each time that its task, in the pod in which it runs now, told of it."""
        logs = [self.log(pod) for pod in self.pods("teacher")]
        return [int(number) for log in logs for number in re.findall(r"teacher: running: (\d+)/\d+ steps", log)]

    def log(self, pod: str) -> str:
        """A pod's log; empty before the pod begins and after it is gone."""
        command = ["kubectl", "-n", NAMESPACE, "logs", pod, "-c", "main"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def server() -> submission.Server:
    return submission.Server(HOST, None, lambda: None, PAGES or None)


def begin(overrides: str = "", *, seed: int = SEED, fails: bool = False, recipe: list[str] | None = None) -> Run:
    """A run with the values that the page's form takes."""
    read = load(ROOT / "recipes" / "digits.yaml", recipe or SHORT)
    with tempfile.TemporaryDirectory() as folder:
        created = (
            server()
            .client()
            .create_run_from_pipeline_package(
                str(write(read, IMAGES, Path(folder))[0]),
                arguments={"overrides": overrides, "seed": seed, "fail_when_rejected": fails},
                run_name=f"walk {overrides}",
                enable_caching=False,
            )
        )
    return Run(str(created.run_id))
