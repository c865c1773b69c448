"""The manifests that carry out promotions."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.manifests.rendered import KUBECTL, MANIFESTS, OVERLAYS, built, named, pods
from understudy.registry import promotion_files

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


def test_the_account_that_promotes_has_a_namespace_of_its_own_and_no_right_there() -> None:
    resources = built("promotions")
    assert {resource["metadata"].get("namespace") for resource in resources if resource["kind"] != "Namespace"} == {
        "understudy-promotions"
    }
    assert not {"Role", "RoleBinding", "ClusterRoleBinding", "Secret"} & {m["kind"] for m in resources}
    [namespace] = named(resources, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    allowed = named(built("overlays/production"), "NetworkPolicy")["mlflow"]["spec"]["ingress"][0]["from"]
    labels = [peer.get("namespaceSelector", {}).get("matchLabels", {}) for peer in allowed]
    assert any(label and label.items() <= namespace["metadata"]["labels"].items() for label in labels)
    [pod] = pods(resources)
    assert pod["spec"]["automountServiceAccountToken"] is False
    accounts = [named(built(f"overlays/{name}"), "ServiceAccount").keys() for name in OVERLAYS]
    assert not any("understudy-promoter" in names for names in accounts)


def test_the_folder_has_promotions_and_their_policy() -> None:
    assert promotion_files.promotions(MANIFESTS / "promotions") == {}
    assert promotion_files.policy(MANIFESTS / "promotions").reviewers == {}


def test_other_promotions_are_another_job(tmp_path: Path) -> None:
    job = named(built("promotions"), "Job")["understudy-promote"]
    [volume] = [
        candidate for candidate in job["spec"]["template"]["spec"]["volumes"] if candidate["name"] == "promotions"
    ]
    assert volume["configMap"]["name"].startswith("understudy-promotions-"), "with the hash of its content"
    notes = job["metadata"]["annotations"]
    assert notes["argocd.argoproj.io/sync-options"] == "Force=true,Replace=true"
    assert notes["kustomize.toolkit.fluxcd.io/force"] == "enabled"
    copy = shutil.copytree(MANIFESTS / "promotions", tmp_path / "promotions")
    [(kustomization, text)] = promotion_files.listing(copy, "digits.yaml").items()
    kustomization.write_text(text)
    (copy / "digits.yaml").write_text("model: digits\n")
    done = subprocess.run([str(KUBECTL), "kustomize", str(copy)], capture_output=True, text=True, check=True)
    resources = list(yaml.safe_load_all(done.stdout))
    [files] = named(resources, "ConfigMap").values()
    assert files["data"].keys() == {"policy.yaml", "digits.yaml"}
    assert promotion_files.policy(copy).approvals == 2
    [later_volume] = [
        v
        for v in named(resources, "Job")["understudy-promote"]["spec"]["template"]["spec"]["volumes"]
        if "configMap" in v
    ]
    assert later_volume["configMap"]["name"] == files["metadata"]["name"] != volume["configMap"]["name"]
