"""Accounts and secrets of the MLflow server and of the pipeline's pods."""

from typing import Any

import pytest

from tests.unit.manifests.rendered import KUBECTL, built, named, pods, server, settings
from understudy.cli import doctor_accounts
from understudy.kube.settings import SECRETS, parsed
from understudy.registry import pod_token
from understudy.runs import submission
from understudy_server import teams

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


def test_every_secret_that_the_server_needs_is_brought_along(overlay: list[dict[str, Any]]) -> None:
    needed = {source["secretRef"]["name"] for source in server(overlay)["envFrom"]}
    provided = {secret["spec"]["target"]["name"] for secret in named(overlay, "ExternalSecret").values()}
    assert provided | named(overlay, "Secret").keys() == needed


def test_the_pipelines_pods_sign_in_with_a_token_and_no_secret(overlay: list[dict[str, Any]]) -> None:
    environment = named(overlay, "ConfigMap")["understudy-environment"]["data"]
    assert environment["MLFLOW_TRACKING_AUTH"] == pod_token.POD
    assert not named(overlay, "Secret").keys() & SECRETS.keys()


def test_the_servers_pod_has_a_token_for_reviewing_tokens(overlay: list[dict[str, Any]]) -> None:
    pod = named(overlay, "Deployment")["mlflow"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("mlflow", True)
    binding = named(overlay, "ClusterRoleBinding")["understudy-token-reviews"]
    assert [subject["name"] for subject in binding["subjects"]] == ["mlflow"]
    [rule] = named(overlay, "ClusterRole")[binding["roleRef"]["name"]]["rules"]
    assert (rule["resources"], rule["verbs"]) == (["tokenreviews"], ["create"])


def test_only_the_server_has_the_admins_password(overlay: list[dict[str, Any]]) -> None:
    for pod in pods(overlay):
        labels = pod.get("metadata", {}).get("labels", {}).values()
        if "mlflow" not in labels:
            assert "mlflow-accounts" not in str(pod["spec"])
            assert "operations" in labels or "secret" not in str(pod["spec"]).lower()
    assert "mlflow-accounts" not in str(submission.render("digits-1", parsed(settings(overlay), "cluster.yaml")))


def test_nobody_may_anything_on_the_server_unless_an_overlay_names_them(overlay: list[dict[str, Any]]) -> None:
    assert {"name": teams.SETTING, "value": ""} in server(built("base"))["env"]
    names = [value["name"] for value in server(overlay)["env"]]
    assert names.index("NAMESPACE") < names.index(teams.SETTING), "its value names the namespace"


def test_the_accounts_of_an_overlay_are_those_that_its_pods_have(
    overlay: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (namespace,) = named(overlay, "Namespace")
    [setting] = [value["value"] for value in server(overlay)["env"] if value["name"] == teams.SETTING]
    monkeypatch.setenv(teams.SETTING, setting.replace("$(NAMESPACE)", namespace))
    [team] = teams.read().teams.values()
    of_kfp = {f"system:serviceaccount:{namespace}:{name}" for name in doctor_accounts.KFP}
    assert team.writers - of_kfp == {f"system:serviceaccount:{namespace}:{submission.ACCOUNT}"}
    [job] = [resource for resource in built("promotions") if resource["kind"] == "Job"]
    job_namespace, pod = job["metadata"]["namespace"], job["spec"]["template"]["spec"]
    assert team.reviewers == {f"system:serviceaccount:{job_namespace}:{pod['serviceAccountName']}"}
    assert {"name": "mlflow", **pod_token.VOLUME} in pod["volumes"]


def test_the_server_has_accounts_and_a_readiness_probe(overlay: list[dict[str, Any]]) -> None:
    container = server(overlay)
    assert container["command"] == ["python", "-m", "understudy_server.app"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"


def test_the_pipeline_may_read_no_secret_and_the_ranks_nothing(overlay: list[dict[str, Any]]) -> None:
    for role in [*named(overlay, "Role").values(), *named(overlay, "ClusterRole").values()]:
        for rule in role["rules"]:
            assert not {"secrets", "*"} & {*rule["resources"], *rule["verbs"], *rule["apiGroups"]}
    bound = [named(overlay, kind) for kind in ("RoleBinding", "ClusterRoleBinding")]
    subjects = {
        subject["name"] for bindings in bound for binding in bindings.values() for subject in binding["subjects"]
    }
    assert subjects == {submission.ACCOUNT, "mlflow"}
