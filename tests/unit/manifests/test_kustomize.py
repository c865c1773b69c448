"""Properties of the manifests as kustomize renders them; tests/cluster asks the API server."""

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.manifests.rendered import (
    KUBECTL,
    MANIFESTS,
    OVERLAYS,
    built,
    dev_with,
    named,
    pods,
    server,
    settings,
    with_component,
)
from understudy.kube.settings import parsed
from understudy.launch.kubernetes.rendering import pod_security, trainjob
from understudy.runs import submission

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


def test_every_namespace_enforces_restricted(overlay: list[dict[str, Any]]) -> None:
    namespaces = named(overlay, "Namespace")
    assert namespaces
    for namespace in namespaces.values():
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_every_pod_is_fit_for_restricted_and_cannot_write_its_image(overlay: list[dict[str, Any]]) -> None:
    for pod in pods(overlay):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


def test_images_have_a_registry_and_a_tag_that_stays(overlay: list[dict[str, Any]]) -> None:
    images = [container["image"] for pod in pods(overlay) for container in pod["spec"]["containers"]]
    images.append(parsed(settings(overlay), "cluster.yaml").image)
    for image in images:
        name, _, tag = image.rpartition(":")
        assert "/" in name
        assert tag not in ("", "latest")


def test_the_settings_are_read_as_every_step_reads_them(overlay: list[dict[str, Any]]) -> None:
    cluster = parsed(settings(overlay), "cluster.yaml")
    claims = named(overlay, "PersistentVolumeClaim")
    assert claims[cluster.claim]["spec"]["accessModes"] == ["ReadWriteMany"]
    assert {submission.ACCOUNT, cluster.service_account} <= named(overlay, "ServiceAccount").keys()
    assert cluster.queue is None or cluster.queue in named(overlay, "LocalQueue")


@pytest.mark.parametrize("path", ["base", *(f"overlays/{name}" for name in OVERLAYS if name != "dev")])
def test_no_secret_is_written_down(path: str) -> None:
    assert not named(built(path), "Secret")


def test_secrets_for_development_are_marked_as_such() -> None:
    for secret in named(built("overlays/dev"), "Secret").values():
        values = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
        assert {value for key, value in values.items() if key != "MLFLOW_TRACKING_USERNAME"} == {"only-for-development"}


def test_jobs_cannot_use_the_servers_secrets(overlay: list[dict[str, Any]]) -> None:
    policy = named(overlay, "ValidatingAdmissionPolicy")["understudy-jobs"]["spec"]
    forbidden = {name["name"]: yaml.safe_load(name["expression"]) for name in policy["variables"][:2]}
    read = {source["secretRef"]["name"] for source in server(overlay)["envFrom"]}
    claims = named(overlay, "PersistentVolumeClaim").keys() - {settings(overlay)["claim"]}
    assert read <= set(forbidden["secrets"])
    assert claims <= set(forbidden["claims"])
    binding = named(overlay, "ValidatingAdmissionPolicyBinding")["understudy-jobs"]["spec"]
    assert "matchResources" not in binding, "for every namespace where the pipeline's account has its rights"
    assert "paramKind" not in policy, "an API server no longer reads it for a policy that was removed and made again"
    assert "'understudy-pipeline'" in policy["matchConditions"][0]["expression"]
    assert "understudy-pipeline" in named(overlay, "RoleBinding")


def test_the_pods_of_train_jobs_are_fit_for_restricted(tmp_path: Path) -> None:
    resources = dev_with("trainer", tmp_path)
    runtime = named(resources, "TrainingRuntime")[trainjob.RUNTIME]
    assert runtime["metadata"]["namespace"] in named(resources, "Namespace")
    [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    assert pod["securityContext"] == pod_security.SECURITY
    assert pod["automountServiceAccountToken"] is False
    [ranks] = pod["containers"]
    ours = pod_security.container("x", parsed(settings(resources), "cluster.yaml"), [], {})
    assert ranks["securityContext"] == ours["securityContext"]


@pytest.mark.parametrize(("overlay", "count"), [("dev", 3), ("production", 9)])
def test_on_openshift_the_namespace_gives_users_and_groups(tmp_path: Path, overlay: str, count: int) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    resources = with_component("openshift", tmp_path / "manifests", overlay)
    resolver = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}}
    (rule,) = [rule for rule in named(resources, "NetworkPolicy")["names"]["spec"]["egress"] if resolver in rule["to"]]
    assert {(port["protocol"], port["port"]) for port in rule["ports"]} == {("UDP", 5353), ("TCP", 5353)}
    templates = pods(resources)
    assert len(templates) == count
    for pod in templates:
        contexts = [
            pod["spec"]["securityContext"],
            *(container["securityContext"] for container in pod["spec"]["containers"]),
        ]
        assert not {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"} & {
            key for context in contexts for key in context
        }


def test_the_server_answers_to_the_name_that_people_ask_for(tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    settings_file = tmp_path / "manifests" / "settings" / "dev" / "settings.yaml"
    settings_file.write_text(settings_file.read_text().replace("# mlflow-host: mlflow", "mlflow-host: pages"))
    resources = with_component("mlflow-ingress", tmp_path / "manifests")
    spec = named(resources, "Ingress")["mlflow"]["spec"]
    (host,) = [rule["host"] for rule in spec["rules"]]
    assert spec["tls"][0]["hosts"] == [host] == ["pages.example.com"]
    (container,) = named(resources, "Deployment")["mlflow"]["spec"]["template"]["spec"]["containers"]
    (hosts,) = [variable["value"] for variable in container["env"] if variable["name"] == "MLFLOW_SERVER_ALLOWED_HOSTS"]
    assert hosts.split(",")[-1] == host
    assert "mlflow:5000" in hosts.split(",")


def test_no_job_of_a_gitops_engine_expires(overlay: list[dict[str, Any]]) -> None:
    assert not [name for name, job in named(overlay, "Job").items() if "ttlSecondsAfterFinished" in job["spec"]]


@pytest.mark.parametrize("recipe", sorted((MANIFESTS.parent / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_pipelines_are_those_of_the_recipes(recipe: Path, tmp_path: Path) -> None:
    from understudy.pipelines.compiled import write
    from understudy.recipe.file import load

    compiled = write(load(recipe), "registry.example.com/ml/understudy:0.1.0", tmp_path)[1]
    committed = MANIFESTS / "pipelines" / recipe.name
    assert compiled.read_bytes() == committed.read_bytes(), "make manifests writes them anew"
    assert recipe.name in yaml.safe_load((MANIFESTS / "pipelines/kustomization.yaml").read_text())["resources"]


def test_users_have_every_right_that_doctor_checks() -> None:
    from understudy.cli.doctor_cluster import RIGHTS

    documents = yaml.safe_load_all((MANIFESTS / "base/rights.yaml").read_text())
    (role,) = [d for d in documents if d["kind"] == "Role" and d["metadata"]["name"] == "understudy-user"]
    granted = {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert set(RIGHTS) <= granted
    assert not {resource for _, _, resource in granted} & {"secrets", "pods/exec", "roles", "rolebindings"}


def test_defaults_of_the_api_server_in_lists_are_written_out() -> None:
    secrets = named(built("overlays/production"), "ExternalSecret").values()
    extracts = [source["extract"] for secret in secrets for source in secret["spec"]["dataFrom"]]
    defaults = {"conversionStrategy": "Default", "decodingStrategy": "None", "metadataPolicy": "None"}
    assert [{**defaults, "key": source["key"]} for source in extracts] == extracts
    assert len(extracts) == 2


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "Namespace"])
def test_no_engine_removes_volumes_and_namespaces(overlay: list[dict[str, Any]], kind: str) -> None:
    resources = named(overlay, kind)
    assert resources
    for resource in resources.values():
        notes = resource["metadata"]["annotations"]
        assert notes["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
        assert notes["kustomize.toolkit.fluxcd.io/prune"] == "disabled"


def test_prometheus_scrapes_the_ports_that_listen() -> None:
    resources = built("overlays/production")
    address = named(resources, "ConfigMap")["understudy-environment"]["data"]["UNDERSTUDY_METRICS"]
    assert {"name": "UNDERSTUDY_METRICS", "value": address} in server(resources)["env"]
    ports = {port["name"]: port["containerPort"] for port in server(resources)["ports"]}
    assert address == f"0.0.0.0:{ports['metrics']}"
    assert "UNDERSTUDY_METRICS" not in str(built("overlays/dev")), "nothing listens where nobody scrapes"
    monitors = named(resources, "PodMonitor")
    assert monitors["understudy-mlflow"]["spec"]["podMetricsEndpoints"][0]["port"] == "metrics"
    [launchers] = monitors["understudy-launchers"]["spec"]["podMetricsEndpoints"]
    assert f"$1:{ports['metrics']}" in [rule.get("replacement") for rule in launchers["relabelings"]]
    assert named(resources, "ConfigMap")["understudy-dashboard"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert len(named(resources, "Service")["mlflow"]["spec"]["ports"]) == 1


def empty_lists(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [empty for key, item in value.items() for empty in empty_lists(item, f"{path}.{key}")]
    if isinstance(value, list):
        return [empty for item in value for empty in empty_lists(item, f"{path}[]")] if value else [path]
    return []


def test_nothing_is_written_that_the_api_server_drops(overlay: list[dict[str, Any]]) -> None:
    """An engine would see a difference from the cluster for ever, and apply it again and again."""
    assert [(resource["metadata"]["name"], path) for resource in overlay for path in empty_lists(resource)] == []
