"""The namespaces of Kubeflow: the overlays of docs/operating/kfp.md, and that they leave alone what else is there."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.manifests.peers import DNS, DRIVER, MLFLOW, OUTSIDE, RANK, Peer, matches, may
from tests.unit.manifests.rendered import KUBECTL, MANIFESTS, built, named, pods
from understudy.kube.identity import NO_SIDECAR

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
DOCS = MANIFESTS.parent / "docs/operating/kfp.md"
PIPELINE = "understudy-pipeline"
ACCOUNTS = {"kubeflow": "pipeline-runner", "team-a": "default-editor"}
"""Whom KFP's tasks run as, by namespace: a stock one's, and a profile's."""
KFP = {
    "ml-pipeline": {"app": "ml-pipeline", "app.kubernetes.io/component": "ml-pipeline"},
    "a task of somebody": {"pipelines.kubeflow.org/v2_component": "true", "component": "driver"},
    "seaweedfs": {"app": "seaweedfs", "app.kubernetes.io/name": "seaweedfs"},
    "spark": {"app.kubernetes.io/component": "driver", "app.kubernetes.io/name": "spark"},
}
"""Labels of pods of others that are in such a namespace."""


def overlay(namespace: str, folder: Path) -> list[dict[str, Any]]:
    """What kustomize makes of the overlay that the docs have for a namespace."""
    blocks = re.findall(r"(?:^    .*\n)+", DOCS.read_text(), re.MULTILINE)
    [block] = [
        candidate
        for candidate in blocks
        if f"namespace: {namespace}\n" in candidate and "resources: [../dev]" in candidate
    ]
    above = os.path.relpath(MANIFESTS, folder.resolve())
    text = re.sub("^    ", "", block, flags=re.MULTILINE)
    text = text.replace("[../dev]", f"[{above}/overlays/dev]").replace("../../components", f"{above}/components")
    (folder / "kustomization.yaml").write_text(text)
    return built(str(folder))


@pytest.fixture(params=ACCOUNTS)
def namespace(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def resources(namespace: str, tmp_path: Path) -> list[dict[str, Any]]:
    return overlay(namespace, tmp_path)


def test_everything_goes_into_an_existing_namespace(resources: list[dict[str, Any]], namespace: str) -> None:
    assert named(resources, "Namespace") == {}, "deleting the overlay would delete it, with all that is in it"
    assert {resource["metadata"].get("namespace", namespace) for resource in resources} == {namespace}
    bindings = [*named(resources, "RoleBinding").values(), *named(resources, "ClusterRoleBinding").values()]
    assert "NAMESPACE" not in str(bindings)


def test_the_account_of_kfps_tasks_has_the_rights_of_a_launcher(
    resources: list[dict[str, Any]], namespace: str
) -> None:
    account = {"kind": "ServiceAccount", "name": ACCOUNTS[namespace], "namespace": namespace}
    tasks = named(resources, "RoleBinding")["understudy-tasks"]
    assert (tasks["subjects"], tasks["roleRef"]["name"]) == ([account], "understudy-pipeline")
    bindings = named(resources, "ClusterRoleBinding")
    assert account in bindings[f"understudy-nodes.{namespace}"]["subjects"]
    assert all(name.endswith(f".{namespace}") for name in bindings), "another namespace's binding is another one"


def test_the_account_of_kfps_tasks_may_sign_in_to_mlflow_and_write_there(
    resources: list[dict[str, Any]], namespace: str
) -> None:
    """A task asks for a token of its own account, and the server takes that account for a writer of the team."""
    account = ACCOUNTS[namespace]
    granted = {
        (subject["kind"], subject["name"], subject["namespace"], tuple(rule.get("resourceNames", ())))
        for binding in named(resources, "RoleBinding").values()
        for subject in binding["subjects"]
        for rule in named(resources, "Role")[binding["roleRef"]["name"]]["rules"]
        if "serviceaccounts/token" in rule["resources"] and "create" in rule["verbs"]
    }
    assert granted == {("ServiceAccount", account, namespace, (account,))}, "its own and no other's"
    [server] = named(resources, "Deployment")["mlflow"]["spec"]["template"]["spec"]["containers"]
    [accounts] = [value["value"] for value in server["env"] if value["name"] == "UNDERSTUDY_ACCOUNTS"]
    writers = yaml.safe_load(accounts)["teams"]["understudy"]["writers"]
    assert f"system:serviceaccount:$(NAMESPACE):{account}" in writers


@pytest.mark.parametrize("labels", KFP.values(), ids=KFP)
def test_no_policy_selects_pods_of_kfp(resources: list[dict[str, Any]], labels: dict[str, str]) -> None:
    for policy in named(resources, "NetworkPolicy").values():
        assert not matches(policy["spec"]["podSelector"], labels), policy["metadata"]["name"]


SERVICES = Peer({"app": "ml-pipeline"}, {"kubernetes.io/metadata.name": "kubeflow"})


@pytest.mark.parametrize(
    ("source", "target", "port", "allowed"),
    [
        *((DRIVER, SERVICES, port, True) for port in (8887, 8888, 8080, 9000, 8333)),
        (DRIVER, SERVICES, 3306, False),
        *((RANK, SERVICES, port, False) for port in (8888, 9000, 443)),
        *((peer, DNS, -53, True) for peer in (DRIVER, RANK, MLFLOW)),
        (RANK, RANK, 40123, False),  # until the launcher opens the way for their job
        (DRIVER, MLFLOW, 5000, True),
        *((Peer(labels), MLFLOW, 5000, False) for labels in KFP.values() if "spark" not in labels.values()),
        *((Peer(labels), RANK, 40123, False) for labels in KFP.values()),
        (RANK, OUTSIDE, 443, False),
    ],
)
def test_tasks_reach_kfp_and_ranks_nobody(
    resources: list[dict[str, Any]], source: Peer, target: Peer, port: int, allowed: bool
) -> None:
    policies = list(named(resources, "NetworkPolicy").values())
    protocol_and_port = ("UDP", -port) if port < 0 else ("TCP", port)

    def open_to(direction: str, pod: Peer, peer: Peer) -> bool:
        """Without a default deny a pod that no policy isolates speaks to everybody."""
        kind = direction.capitalize()
        isolating = [
            policy
            for policy in policies
            if matches(policy["spec"]["podSelector"], pod.labels or {}) and kind in policy["spec"]["policyTypes"]
        ]
        return not isolating or may(isolating, direction, pod, peer, protocol_and_port)

    assert (open_to("egress", source, target) and open_to("ingress", target, source)) == allowed


def test_jobs_cannot_use_the_servers_secrets_here_either(resources: list[dict[str, Any]]) -> None:
    assert "understudy-jobs" in named(resources, "ValidatingAdmissionPolicyBinding")
    bound = named(resources, "RoleBinding")["understudy-pipeline"]
    assert (bound["subjects"][0]["name"], bound["roleRef"]["name"]) == (PIPELINE, PIPELINE), "by it the policy goes"


def test_the_network_policies_of_launchers_are_checked_here_too(
    resources: list[dict[str, Any]], namespace: str
) -> None:
    """By whom they are made is said by name; a namespace of KFP's has no label of ours by which it could be chosen."""
    policy = named(resources, "ValidatingAdmissionPolicy")["understudy-networks"]["spec"]
    conditions = {condition["name"]: condition["expression"] for condition in policy["matchConditions"]}
    assert {PIPELINE, ACCOUNTS[namespace]} <= set(re.findall("'([a-z-]+)'", conditions["made-by-a-launcher"]))
    jobs = named(resources, "ValidatingAdmissionPolicy")["understudy-jobs"]["spec"]["matchConditions"]
    assert conditions["where-these-manifests-are"] == jobs[0]["expression"]
    assert "matchResources" not in named(resources, "ValidatingAdmissionPolicyBinding")["understudy-networks"]["spec"]


def test_in_a_profile_no_pod_has_a_proxy_beside_it(tmp_path: Path) -> None:
    templates = pods(overlay("team-a", tmp_path))
    assert len(templates) == 3
    for pod in templates:
        assert NO_SIDECAR.items() <= pod["metadata"]["labels"].items()
