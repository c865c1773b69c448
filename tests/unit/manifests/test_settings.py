"""Each value of an environment's settings reaches every place that it is for, and a release is one changed line."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.manifests.rendered import KUBECTL, MANIFESTS, OVERLAYS, built, named, pods, settings
from understudy.kube.settings import parsed

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
DIGEST = "0123456789abcdef" * 4
NEW = {
    "registry": "registry.test:5000/a/b",
    "release": " ".join(f"{name}:2.0@sha256:{DIGEST}" for name in ("trainer", "launcher", "mlflow")),
    "storage-class": "fast",
    "storage": "7Ti",
    "secret-store": "vault",
    "repository": "ssh://git@git.test/a.git",
    "revision": "v2",
}
Resources = list[dict[str, Any]]


@pytest.fixture(params=OVERLAYS)
def environment(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def changed(environment: str, tmp_path: Path) -> Path:
    """The manifests with another value for every setting, each of them one line of one file."""
    copy = shutil.copytree(MANIFESTS, tmp_path / "manifests")
    path = copy / "settings" / environment / "settings.yaml"
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        key = line.partition(":")[0].strip()
        if key in NEW:
            lines[number] = f'  {key}: "{NEW[key]}"'
    path.write_text("\n".join(lines) + "\n")
    return copy


def images(resources: Resources) -> set[str]:
    return {container["image"] for pod in pods(resources) for container in pod["spec"]["containers"]}


def test_a_release_and_a_registry_are_a_line_each_and_reach_every_image(environment: str, changed: Path) -> None:
    resources = built(str(changed / "overlays" / environment))
    used_images = images(resources) | {parsed(settings(resources), "cluster.yaml").image}
    expected = {f"registry.test:5000/a/b/understudy-{name}" for name in NEW["release"].split(" ")}
    assert used_images == expected
    [launcher] = images(built(str(changed / "overlays" / environment / "promotions")))
    assert launcher in expected


def test_the_trainer_of_jobs_and_of_manifests_is_one(environment: str) -> None:
    resources = built(f"overlays/{environment}")
    [prepare] = [
        c["image"]
        for c in named(resources, "Job")["understudy-prepare-store"]["spec"]["template"]["spec"]["containers"]
    ]
    assert parsed(settings(resources), "cluster.yaml").image == prepare


def test_class_size_and_accounts_are_those_of_the_settings(environment: str, changed: Path) -> None:
    resources = built(str(changed / "overlays" / environment))
    claim = named(resources, "PersistentVolumeClaim")["understudy-store"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "7Ti")
    [server] = named(resources, "Deployment")["mlflow"]["spec"]["template"]["spec"]["containers"]
    [accounts] = [value["value"] for value in server["env"] if value["name"] == "UNDERSTUDY_ACCOUNTS"]
    assert accounts == named(resources, "ConfigMap")["understudy"]["data"]["accounts.yaml"]
    writers = yaml.safe_load(accounts)["teams"]["understudy"]["writers"]
    kubeflow = ["pipeline-runner", "default-editor"] if environment == "dev" else []
    assert writers == [f"system:serviceaccount:$(NAMESPACE):{name}" for name in ("understudy-pipeline", *kubeflow)]


def test_credentials_come_from_the_store_that_the_settings_name(environment: str, changed: Path) -> None:
    secrets = named(built(str(changed / "overlays" / environment)), "ExternalSecret").values()
    assert {secret["spec"]["secretStoreRef"]["name"] for secret in secrets} <= {"vault"}
    assert bool(secrets) == (environment == "production")


@pytest.mark.parametrize("engine", ["", "root", "flux"])
def test_repository_and_revision_reach_both_engines(environment: str, changed: Path, engine: str) -> None:
    resources = built(str(changed / "clusters" / environment / engine))
    ours = [application["spec"]["source"] for application in resources if application["kind"] == "Application"]
    ours = [source for source in ours if source["repoURL"].startswith("ssh:")]
    sources = [(source["repoURL"], source["targetRevision"]) for source in ours]
    if engine == "flux":
        spec = named(resources, "GitRepository")["understudy"]["spec"]
        sources = [(spec["url"], spec["ref"]["branch"])]
    assert set(sources) == {(NEW["repository"], NEW["revision"])}
    assert "REPOSITORY" not in yaml.safe_dump_all(resources)
    assert "ENVIRONMENT" not in yaml.safe_dump_all(resources)


def test_the_settings_are_in_the_namespace_and_nowhere_else(environment: str) -> None:
    assert named(built(f"overlays/{environment}"), "ConfigMap")["understudy"]["data"]["environment"] == environment
    for path in (f"clusters/{environment}", f"clusters/{environment}/flux", f"overlays/{environment}/promotions"):
        assert "understudy" not in named(built(path), "ConfigMap")


@pytest.mark.parametrize(
    ("component", "before", "after"),
    [
        ("external-secret-v1beta1", "external-secrets.io/v1", "external-secrets.io/v1beta1"),
        ("kueue-v1beta2", "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"),
    ],
)
def test_a_component_changes_the_version_of_an_operators_objects_and_nothing_else(
    component: str, before: str, after: str, tmp_path: Path
) -> None:
    copy = shutil.copytree(MANIFESTS, tmp_path / "manifests")
    path = copy / "overlays" / "production" / "kustomization.yaml"
    last = "  - ../../components/monitoring\n"
    path.write_text(path.read_text().replace(last, f"{last}  - ../../components/{component}\n"))
    rendered = subprocess.run([str(KUBECTL), "kustomize", str(path.parent)], capture_output=True, text=True, check=True)
    plain = built("overlays/production")
    assert any(resource["apiVersion"] == before for resource in plain)
    expected = [
        {**resource, "apiVersion": after} if resource["apiVersion"] == before else resource for resource in plain
    ]
    key = lambda resource: (resource["kind"], resource["metadata"]["name"])  # noqa: E731
    assert sorted(yaml.safe_load_all(rendered.stdout), key=key) == sorted(expected, key=key)
