"""The manifests, as the API server takes them: accepted, idempotent, and with the rights that they promise."""

import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.cluster.launched import FOR_THE_CLUSTER, overlay
from understudy.kube.identity import Identity
from understudy.kube.operators import SECRETS
from understudy.launch.kubernetes.rendering import network

MANIFESTS = ROOT / "manifests"
UNKNOWN = {"Pipeline", "PipelineVersion"}  # KFP's types are not on every cluster
Thing = dict[str, Any]
pytestmark = pytest.mark.cluster
HERE = f"understudy-applied-{secrets.token_hex(3)}"
PIPELINE = f"system:serviceaccount:{HERE}:understudy-pipeline"
WORKER = f"system:serviceaccount:{HERE}:understudy-worker"
PERSON = "somebody"
CREATES = {"PyTorchJob": PIPELINE, "Job": PERSON}
"""Who makes jobs of a kind."""


def kubectl(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["kubectl", *arguments], capture_output=True, text=True, check=False, input=text)


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> Iterator[None]:
    for name in ("understudy", "understudy-promotions", "argocd"):
        kubectl("create", "namespace", name)
    yield
    kubectl("delete", "namespace", HERE, "--wait=false")
    kubectl("delete", "clusterrolebinding", *(f"{HERE}-{name}" for name in FOR_THE_CLUSTER))


@pytest.mark.parametrize(
    "folder", ["overlays/dev", "overlays/dev/promotions", "overlays/production", "clusters/dev", "clusters/production"]
)
def test_everything_is_accepted_without_a_warning(folder: str) -> None:
    objects = kubectl("kustomize", str(MANIFESTS / folder)).stdout
    if f"{SECRETS}/v1" not in kubectl("api-versions").stdout.split():
        objects = objects.replace(f"{SECRETS}/v1\n", f"{SECRETS}/v1beta1\n")  # as its component for older ones does
    done = kubectl("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-", text=objects)
    assert (done.returncode, done.stderr) == (0, "")


def test_of_the_pipelines_only_types_that_the_cluster_lacks_are_refused() -> None:
    done = kubectl("apply", "--server-side", "--dry-run=server", "-k", str(MANIFESTS / "pipelines"))
    refused = [line for line in done.stderr.splitlines() if "ensure CRDs" not in line]
    assert all("no matches for kind" in line and line.split('kind "')[1].split('"')[0] in UNKNOWN for line in refused)


def test_applying_twice_changes_nothing(tmp_path: Path) -> None:
    objects = overlay(HERE, tmp_path)

    def versions() -> dict[str, str]:
        kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,cronjobs"
        items = json.loads(kubectl("-n", HERE, "get", kinds, "-o", "json").stdout)["items"]
        metas = [(item["kind"], item["metadata"]) for item in items]
        return {f"{kind}/{m['name']}": str(m.get("generation") or m["resourceVersion"]) for kind, m in metas}

    once = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=objects)
    assert (once.returncode, once.stderr) == (0, "")
    before = versions()
    again = kubectl("apply", "--server-side", "-f", "-", text=objects)
    assert (again.returncode, again.stderr) == (0, "")
    assert versions() == before
    kubectl("create", "rolebinding", PERSON, "-n", HERE, "--role=understudy-user", f"--user={PERSON}")


@pytest.mark.parametrize(
    ("account", "namespace", "verb", "resource_name", "allowed"),
    [
        (PIPELINE, HERE, "create", "pytorchjobs.kubeflow.org", True),
        (PIPELINE, HERE, "delete", "pytorchjobs.kubeflow.org", True),
        (PIPELINE, HERE, "create", "trainjobs.trainer.kubeflow.org", True),
        (PIPELINE, HERE, "delete", "trainjobs.trainer.kubeflow.org", True),
        (PIPELINE, HERE, "get", "trainingruntimes.trainer.kubeflow.org", True),
        (PIPELINE, HERE, "create", "trainingruntimes.trainer.kubeflow.org", False),
        (PIPELINE, HERE, "list", "pods", True),
        (PIPELINE, HERE, "get", "pods/log", True),
        (PIPELINE, HERE, "list", "events", True),
        (PIPELINE, HERE, "create", "events", True),
        (PIPELINE, HERE, "list", "workloads.kueue.x-k8s.io", True),
        (PIPELINE, HERE, "create", "networkpolicies.networking.k8s.io", True),
        (PIPELINE, HERE, "update", "networkpolicies.networking.k8s.io", False),
        (PIPELINE, HERE, "delete", "networkpolicies.networking.k8s.io", False),
        (PIPELINE, HERE, "get", "secrets", False),
        (PIPELINE, HERE, "list", "secrets", False),
        (PIPELINE, HERE, "create", "pods", False),
        (PIPELINE, HERE, "create", "pods/exec", False),
        (PIPELINE, "kube-system", "list", "pods", False),
        (PIPELINE, "kube-system", "get", "secrets", False),
        (WORKER, HERE, "list", "pods", False),
        (WORKER, HERE, "get", "secrets", False),
    ],
)
def test_accounts_have_the_rights_that_they_need_and_no_others(
    account: str, namespace: str, verb: str, resource_name: str, allowed: bool
) -> None:
    resource, _, sub = resource_name.partition("/")
    detail = [f"--subresource={sub}"] if sub else []
    done = kubectl("auth", "can-i", verb, resource, *detail, "--as", account, "-n", namespace)
    assert done.stdout.strip() == ("yes" if allowed else "no")


def a_job(kind: str, container: Thing, volumes: list[Thing]) -> str:
    """A PyTorchJob or a Job of one pod that Pod Security `restricted` lets in."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container, plain = dict(container), {"image": "i", "securityContext": security}
    pod: Thing = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [{"name": "first", **plain, **settings} for settings in container.pop("initContainers", ())],
        "volumes": volumes,
    }
    if account := container.pop("account", ""):
        pod["serviceAccountName"] = account
    template = {"metadata": {"labels": container.pop("labels", {})}, "spec": pod}
    pod["containers"] = [{"name": "pytorch", **plain, **container}]
    worker = {"replicas": 1, "restartPolicy": "Never", "template": template}
    spec: Thing = {"template": template}
    if kind == "PyTorchJob":
        spec = {"pytorchReplicaSpecs": {"Worker": worker}}
    version = "kubeflow.org/v1" if kind == "PyTorchJob" else "batch/v1"
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "takes"}, "spec": spec})


def volume(**source: Any) -> tuple[Thing, list[Thing]]:
    return {}, [{"name": "taken", **source}]


def copy_of(claim: str) -> Thing:
    """A volume that a storage class would make as a copy of a claim."""
    source = {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": claim}
    space = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"volumeClaimTemplate": {"spec": {**space, "dataSource": source}}}


TAKEN = "mlflow-accounts"
KEY = {"name": TAKEN, "key": "MLFLOW_AUTH_ADMIN_PASSWORD"}
OWN = {"name": "understudy-mlflow", "key": "MLFLOW_TRACKING_PASSWORD"}


@pytest.mark.parametrize("kind", CREATES)
@pytest.mark.parametrize(
    ("container", "volumes", "message"),
    [
        ({"envFrom": [{"secretRef": {"name": TAKEN}}]}, [], "into its environment"),
        ({"envFrom": [{"secretRef": {"name": "mlflow-backend"}}]}, [], "into its environment"),
        ({"envFrom": [{"secretRef": {"name": "mlflow-tls"}}]}, [], "into its environment"),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": KEY}}]}, [], "into its environment"),
        (*volume(secret={"secretName": TAKEN}), "mount the Secrets"),
        (*volume(projected={"sources": [{"secret": {"name": TAKEN}}]}), "mount the Secrets"),
        (*volume(persistentVolumeClaim={"claimName": "mlflow"}), "mount the Secrets"),
        (*volume(ephemeral=copy_of("mlflow")), "mount the Secrets"),
        (*volume(csi={"driver": "d", "nodePublishSecretRef": {"name": TAKEN}}), "mount the Secrets"),
        (*volume(ephemeral=copy_of("other")), None),
        ({"initContainers": [{"envFrom": [{"secretRef": {"name": TAKEN}}]}]}, [], "into its environment"),
        ({"labels": {"app.kubernetes.io/name": "mlflow"}}, [], "may not pass for the MLflow server"),
        ({"labels": {"app.kubernetes.io/component": "operations"}}, [], "may not have the ways of"),
        ({"account": "mlflow"}, [], "may not run as the MLflow server"),
        ({"account": "understudy-worker"}, [], None),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": OWN}}, {"name": "B", "value": "b"}]}, [], None),
        (*volume(persistentVolumeClaim={"claimName": "understudy-store"}), None),
    ],
)
def test_no_job_may_use_the_servers_secrets_and_claims(
    kind: str, container: Thing, volumes: list[Thing], message: str | None
) -> None:
    job = a_job(kind, container, volumes)
    create = ["create", "-n", HERE, "--dry-run=server", f"--as={CREATES[kind]}", "-f", "-"]
    for _ in range(30):  # a policy counts from a moment after it was made
        done = kubectl(*create, text=job)
        is_ready = "failed calling webhook" not in done.stderr  # the operator's, in its first seconds
        if is_ready and (message is None or message in done.stderr):
            break
        time.sleep(1)
    assert (message or "created") in done.stdout + done.stderr
    assert bool(done.returncode) == (message is not None), done.stderr


JOB = Identity("run-1", "teacher", "7" * 64)
CHOSEN = network.render(JOB, None)["spec"]["podSelector"]
ANYWHERE = {"egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, None),
        ({"podSelector": {}}, "for the ranks of one job"),
        ({"podSelector": {"matchLabels": {"app.kubernetes.io/component": "training"}}}, "for the ranks of one job"),
        ({"podSelector": {"matchLabels": {"app.kubernetes.io/name": "mlflow"}}}, "for the ranks of one job"),
        (ANYWHERE, "and to nobody else"),
        ({"egress": [{}]}, "and to nobody else"),
        ({"ingress": [{"from": [{"podSelector": {}}]}]}, "and to nobody else"),
        ({"ingress": [{"from": [{"podSelector": CHOSEN, "namespaceSelector": {}}]}]}, "and to nobody else"),
        ({"egress": [{"to": [{"podSelector": CHOSEN}, {"namespaceSelector": {}}]}]}, "and to nobody else"),
    ],
)
def test_a_launcher_opens_the_way_between_ranks_of_one_job_and_no_other(changed: Thing, message: str | None) -> None:
    policy = network.render(JOB, None)
    text = json.dumps({**policy, "spec": {**policy["spec"], **changed}})
    for _ in range(30):  # a policy counts from a moment after it was made
        done = kubectl("create", "-n", HERE, "--dry-run=server", f"--as={PIPELINE}", "-f", "-", text=text)
        if message is None or message in done.stderr:
            break
        time.sleep(1)
    assert (message or "created") in done.stdout + done.stderr
    assert bool(done.returncode) == (message is not None), done.stderr


@pytest.mark.parametrize("labels", [{"understudy.fetches": "true"}, {"app.kubernetes.io/component": "driver"}])
def test_no_training_has_pods_with_the_ways_of_launchers(labels: dict[str, str]) -> None:
    job = a_job("PyTorchJob", {"labels": labels}, [])
    done = kubectl("create", "-n", HERE, "--dry-run=server", f"--as={PIPELINE}", "-f", "-", text=job)
    assert "may not have the ways that launchers have" in done.stderr
