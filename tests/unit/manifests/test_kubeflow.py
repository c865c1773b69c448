"""The namespaces of Kubeflow: the overlays of docs/operating/kfp.md, and that they leave alone what else is there."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.manifests.test_kustomize import (
    DNS,
    DRIVER,
    KUBECTL,
    MANIFESTS,
    MLFLOW,
    OUTSIDE,
    RANK,
    Peer,
    built,
    matches,
    may,
    named,
    pods,
)
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
    [block] = [one for one in blocks if f"namespace: {namespace}\n" in one and "resources: [../dev]" in one]
    above = os.path.relpath(MANIFESTS, folder.resolve())
    text = re.sub("^    ", "", block, flags=re.MULTILINE)
    text = text.replace("[../dev]", f"[{above}/overlays/dev]").replace("../../components", f"{above}/components")
    (folder / "kustomization.yaml").write_text(text)
    return built(str(folder))


@pytest.fixture(params=ACCOUNTS)
def namespace(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(namespace: str, tmp_path: Path) -> list[dict[str, Any]]:
    return overlay(namespace, tmp_path)


def test_everything_is_put_into_a_namespace_that_is_there_already(made: list[dict[str, Any]], namespace: str) -> None:
    assert named(made, "Namespace") == {}, "deleting the overlay would delete it, with all that is in it"
    assert {thing["metadata"].get("namespace", namespace) for thing in made} == {namespace}
    bindings = [*named(made, "RoleBinding").values(), *named(made, "ClusterRoleBinding").values()]
    assert "NAMESPACE" not in str(bindings)


def test_the_account_of_kfps_tasks_has_the_rights_of_a_launcher(made: list[dict[str, Any]], namespace: str) -> None:
    account = {"kind": "ServiceAccount", "name": ACCOUNTS[namespace], "namespace": namespace}
    tasks = named(made, "RoleBinding")["understudy-tasks"]
    assert (tasks["subjects"], tasks["roleRef"]["name"]) == ([account], "understudy-pipeline")
    bindings = named(made, "ClusterRoleBinding")
    assert account in bindings[f"understudy-nodes.{namespace}"]["subjects"]
    assert all(name.endswith(f".{namespace}") for name in bindings), "another namespace's binding is another one"


def test_the_account_of_kfps_tasks_may_sign_in_to_mlflow_and_write_there(
    made: list[dict[str, Any]], namespace: str
) -> None:
    """A task asks for a token of its own account, and the server takes that account for a writer of the team."""
    account = ACCOUNTS[namespace]
    granted = {
        (subject["kind"], subject["name"], subject["namespace"], tuple(rule.get("resourceNames", ())))
        for binding in named(made, "RoleBinding").values()
        for subject in binding["subjects"]
        for rule in named(made, "Role")[binding["roleRef"]["name"]]["rules"]
        if "serviceaccounts/token" in rule["resources"] and "create" in rule["verbs"]
    }
    assert granted == {("ServiceAccount", account, namespace, (account,))}, "its own and no other's"
    [server] = named(made, "Deployment")["mlflow"]["spec"]["template"]["spec"]["containers"]
    [accounts] = [value["value"] for value in server["env"] if value["name"] == "UNDERSTUDY_ACCOUNTS"]
    writers = yaml.safe_load(accounts)["teams"]["understudy"]["writers"]
    assert f"system:serviceaccount:$(NAMESPACE):{account}" in writers


@pytest.mark.parametrize("labels", KFP.values(), ids=KFP)
def test_no_policy_is_about_pods_of_others(made: list[dict[str, Any]], labels: dict[str, str]) -> None:
    for policy in named(made, "NetworkPolicy").values():
        assert not matches(policy["spec"]["podSelector"], labels), policy["metadata"]["name"]


SERVICES = Peer({"app": "ml-pipeline"}, {"kubernetes.io/metadata.name": "kubeflow"})


@pytest.mark.parametrize(
    ("one", "other", "port", "allowed"),
    [
        *((DRIVER, SERVICES, port, True) for port in (8887, 8888, 8080, 9000, 8333)),
        (DRIVER, SERVICES, 3306, False),
        *((RANK, SERVICES, port, False) for port in (8888, 9000, 443)),
        *((one, DNS, -53, True) for one in (DRIVER, RANK, MLFLOW)),
        (RANK, RANK, 40123, False),  # until the launcher opens the way for their job
        (DRIVER, MLFLOW, 5000, True),
        *((Peer(labels), MLFLOW, 5000, False) for labels in KFP.values() if "spark" not in labels.values()),
        *((Peer(labels), RANK, 40123, False) for labels in KFP.values()),
        (RANK, OUTSIDE, 443, False),
    ],
)
def test_tasks_reach_kfp_and_ranks_nobody(
    made: list[dict[str, Any]], one: Peer, other: Peer, port: int, allowed: bool
) -> None:
    policies = list(named(made, "NetworkPolicy").values())
    asked = ("UDP", -port) if port < 0 else ("TCP", port)

    def open_to(way: str, pod: Peer, peer: Peer) -> bool:
        """Without a default deny a pod that no policy isolates speaks to everybody."""
        kind = way.capitalize()
        isolating = [
            policy
            for policy in policies
            if matches(policy["spec"]["podSelector"], pod.labels or {}) and kind in policy["spec"]["policyTypes"]
        ]
        return not isolating or may(isolating, way, pod, peer, asked)

    assert (open_to("egress", one, other) and open_to("ingress", other, one)) == allowed


def test_what_is_the_servers_alone_is_kept_from_jobs_here_too(made: list[dict[str, Any]]) -> None:
    assert "understudy-jobs" in named(made, "ValidatingAdmissionPolicyBinding")
    bound = named(made, "RoleBinding")["understudy-pipeline"]
    assert (bound["subjects"][0]["name"], bound["roleRef"]["name"]) == (PIPELINE, PIPELINE), "by it the policy goes"


def test_the_network_policies_of_launchers_are_checked_here_too(made: list[dict[str, Any]], namespace: str) -> None:
    """By whom they are made is said by name; a namespace of KFP's has no label of ours by which it could be chosen."""
    policy = named(made, "ValidatingAdmissionPolicy")["understudy-networks"]["spec"]
    conditions = {one["name"]: one["expression"] for one in policy["matchConditions"]}
    assert {PIPELINE, ACCOUNTS[namespace]} <= set(re.findall("'([a-z-]+)'", conditions["made-by-a-launcher"]))
    jobs = named(made, "ValidatingAdmissionPolicy")["understudy-jobs"]["spec"]["matchConditions"]
    assert conditions["where-these-manifests-are"] == jobs[0]["expression"]
    assert "matchResources" not in named(made, "ValidatingAdmissionPolicyBinding")["understudy-networks"]["spec"]


def test_in_a_profile_no_pod_has_a_proxy_beside_it(tmp_path: Path) -> None:
    found = pods(overlay("team-a", tmp_path))
    assert len(found) == 3
    for pod in found:
        assert NO_SIDECAR.items() <= pod["metadata"]["labels"].items()
