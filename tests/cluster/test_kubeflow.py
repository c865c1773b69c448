"""Tasks in the form in which KFP 2.17 writes them, in namespaces made like Kubeflow's; there is no KFP here.

A run is a Workflow, an object that nobody reconciles; a task is a pod that it owns. "Terminate" is what KFP does to
the two: the Workflow's deadline becomes 0, and the task gets SIGTERM.
"""

import json
import re
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.launched import IMAGE, SETTINGS, recipe, rendered, wait
from tests.unit.manifests.test_kubeflow import ACCOUNTS, overlay
from understudy.kube.job_state import true_conditions
from understudy.kube.settings import parsed
from understudy.pipelines.pods import LABELS
from understudy.steps.signals import ASKED_TO_END

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.timeout(600)]
PROFILE = f"understudy-profile-{secrets.token_hex(3)}"
PLAIN = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "workflows.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "names": {"kind": "Workflow", "plural": "workflows", "singular": "workflow"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def kubectl(*arguments: str, text: str | None = None, check: bool = True) -> str:
    done = subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Place:
    """A namespace of Kubeflow's, with the resources of its overlay."""

    namespace: str
    account: str

    def __call__(self, *arguments: str, text: str | None = None, check: bool = True) -> str:
        return kubectl("-n", self.namespace, *arguments, text=text, check=check)

    def jobs(self, run: str) -> list[dict[str, Any]]:
        """A run's PyTorchJobs."""
        return list(json.loads(self("get", "pytorchjobs", "-l", f"understudy.run={run}", "-o", "json"))["items"])


def prepared(name: str, account: str, folder: Path) -> Place:
    """A namespace as Kubeflow makes it, and the overlay of docs/operating/kfp.md in it."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"} if name == PROFILE else {}
    kubeflow = Place(name, account)
    kubectl("create", "namespace", name, check=False)  # the training operator may be in kubeflow
    for label, value in labels.items():
        kubectl("label", "namespace", name, f"{label}={value}")
    kubeflow("create", "serviceaccount", account, check=False)
    documented = "team-a" if name == PROFILE else name
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": overlay(documented, folder)})
    text = re.sub(r"registry\.example\.com/ml/understudy-\w+:[\w.]+", IMAGE, text).replace("team-a", name)
    (folder / "applied.json").write_text(text)
    kubeflow("apply", "--server-side", "-f", str(folder / "applied.json"))
    kubeflow("scale", "deployment/mlflow", "--replicas=0")
    kubeflow("wait", "--for=condition=complete", "job/understudy-prepare-store", "--timeout=180s")
    return kubeflow


@pytest.fixture(scope="module", params=ACCOUNTS)
def kubeflow(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp(request.param)
    kubectl("apply", "--server-side", "-f", "-", text=json.dumps(CRD))
    kubectl("wait", "--for=condition=established", "crd/workflows.argoproj.io", "--timeout=60s")
    name = PROFILE if request.param == "team-a" else request.param
    namespace = prepared(name, ACCOUNTS[request.param], folder)
    yield namespace
    namespace("delete", "-f", str(folder / "applied.json"), "--wait=false", "--ignore-not-found")
    namespace("delete", "workflows.argoproj.io", "--all", "--wait=false")
    if name == PROFILE:
        kubectl("delete", "namespace", name, "--wait=false")


def workflow(kubeflow: Place, name: str) -> dict[str, Any]:
    """The object that KFP makes of a run."""
    manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": {}}
    return dict(json.loads(kubeflow("create", "-f", "-", "-o", "json", text=json.dumps(manifest))))


def task(kubeflow: Place, run: dict[str, Any], number: int, values: dict[str, Any]) -> str:
    """Start a run's task; its pod's name. It does the steps up to the teacher."""
    name, flow = f"{run['metadata']['name']}-impl-{number}", run["metadata"]
    maps, job = rendered(flow["name"], values, parsed(SETTINGS, "test"))
    spec = job["spec"]["template"]["spec"]
    main = spec["containers"][0]
    main |= {"name": "main", "securityContext": {**PLAIN, "runAsNonRoot": True}}
    main["env"].append({"name": "KFP_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    argo = {"image": IMAGE, "command": ["true"], "securityContext": {**PLAIN, "runAsNonRoot": True}}
    owner = {"apiVersion": run["apiVersion"], "kind": "Workflow", "name": flow["name"], "uid": flow["uid"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**LABELS, "pipeline/runid": flow["uid"], "workflows.argoproj.io/workflow": flow["name"]},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            **{key: spec[key] for key in ("volumes", "restartPolicy")},
            "serviceAccountName": kubeflow.account,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": [{"name": "init", **argo}, {"name": "kfp-launcher", **argo}],
            "containers": [{"name": "wait", **argo}, main],
        },
    }
    kubeflow("apply", "-f", "-", text=json.dumps(maps))
    kubeflow("create", "-f", "-", text=json.dumps(pod))
    return name


def ended(kubeflow: Place, pod: str) -> int | None:
    """The exit code of a task's container."""
    status = json.loads(kubeflow("get", "pod", pod, "-o", "json"))["status"]
    states = {container["name"]: container["state"] for container in status.get("containerStatuses", ())}
    code = states.get("main", {}).get("terminated", {}).get("exitCode")
    return None if code is None else int(code)


def printed_by(kubeflow: Place, run: str, pod: str, command: str) -> str:
    """The output of a command in the folder of a run's job, in a task's container; nothing without a job."""
    if not (jobs := kubeflow.jobs(run)):
        return ""
    folder = f"/var/lib/understudy/home/store/work/{jobs[-1]['metadata']['labels']['understudy.key']}*/job"
    return kubeflow("exec", pod, "-c", "main", "--", "sh", "-c", f"cd {folder} && {command} 2>/dev/null", check=False)


def checkpoint(kubeflow: Place, run: str, pod: str) -> int:
    """The step of a run's last checkpoint."""
    listed = printed_by(kubeflow, run, pod, "ls attempt.*/checkpoints")
    return max((int(step) for step in re.findall(r"^step-(\d+)$", listed, re.MULTILINE)), default=0)


def steps(kubeflow: Place, run: str, pod: str) -> list[int]:
    """The steps that a run's ranks have reported, in their order."""
    lines = printed_by(kubeflow, run, pod, "cat metrics.jsonl")
    return [int(json.loads(line)["step"]) for line in lines.splitlines() if line.endswith("}")]


def log(kubeflow: Place, pod: str) -> str:
    return kubeflow("logs", pod, "-c", "main", check=False)


def test_a_task_of_kfp_is_admitted_and_trains(kubeflow: Place) -> None:
    run = workflow(kubeflow, f"whole-{secrets.token_hex(3)}")
    pod = task(kubeflow, run, 1, recipe(nodes=1, train={"steps": 20}))
    assert (
        wait(lambda: None if (code := ended(kubeflow, pod)) is None else str(code), 240, lambda: log(kubeflow, pod))
        == "0"
    )
    assert re.search(r"^teacher [0-9a-f]{64}$", log(kubeflow, pod), re.MULTILINE)


LONG = recipe(nodes=1, train={"steps": 2000})


def test_a_run_that_is_terminated_ends_at_a_checkpoint_and_a_retry_goes_on_from_it(kubeflow: Place) -> None:
    run = workflow(kubeflow, f"long-{secrets.token_hex(3)}")
    name = run["metadata"]["name"]
    pod = task(kubeflow, run, 1, LONG)
    wait(lambda: checkpoint(kubeflow, name, pod), 240, lambda: log(kubeflow, pod))
    reached = steps(kubeflow, name, pod)[-1]
    kubeflow("patch", "workflows.argoproj.io", name, "--type=merge", "-p", '{"spec": {"activeDeadlineSeconds": 0}}')
    kubeflow("exec", pod, "-c", "main", "--", "sh", "-c", "kill -TERM 1")
    wait(lambda: ended(kubeflow, pod) is not None, 60, lambda: log(kubeflow, pod))
    lines = log(kubeflow, pod).splitlines()
    assert any(ASKED_TO_END in line for line in lines)
    assert f"Workflow {name} was terminated: the job teacher-" in lines[-1]
    wait(lambda: not kubeflow.jobs(name), 60)
    kubeflow("patch", "workflows.argoproj.io", name, "--type=merge", "-p", '{"spec": {"activeDeadlineSeconds": null}}')
    again = task(kubeflow, run, 2, LONG)
    resumed = wait(
        lambda: (all_ := steps(kubeflow, name, again)) and all_[-1] > reached and all_,
        120,
        lambda: log(kubeflow, again),
    )
    assert resumed.count(resumed[0]) == 1, "it did not begin anew"
    kubeflow("delete", "workflows.argoproj.io", name, "--wait=false")


def test_ranks_of_a_killed_task_end_by_themselves(kubeflow: Place) -> None:
    run = workflow(kubeflow, f"lost-{secrets.token_hex(3)}")
    name = run["metadata"]["name"]
    pod = task(kubeflow, run, 1, {**LONG, "seed": 1})
    wait(lambda: checkpoint(kubeflow, name, pod), 240, lambda: log(kubeflow, pod))
    kubeflow("delete", "pod", pod, "--grace-period=0", "--force")
    assert kubeflow.jobs(name), "it goes on for the next launcher"
    wait(lambda: any("Failed" in true_conditions(job) for job in kubeflow.jobs(name)), 120)
    kubeflow("delete", "pytorchjobs", "-l", f"understudy.run={name}", "--wait=false")
