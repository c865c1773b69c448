"""Resources that Argo CD and Flux deploy to a cluster, their order, and those that are never removed."""

from typing import Any

import pytest

from tests.unit.manifests.rendered import KUBECTL, OVERLAYS, built, named

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
WAVE = "argocd.argoproj.io/sync-wave"
CONFIGURATION = {"Namespace", "ExternalSecret", "ClusterQueue", "LocalQueue", "ResourceFlavor", "PriorityClass"}


@pytest.fixture(params=OVERLAYS)
def environment(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def wave(resource: dict[str, Any]) -> int:
    return int(resource["metadata"].get("annotations", {}).get(WAVE, 0))


def test_a_person_applies_one_application_and_the_check_of_its_health(environment: str) -> None:
    resources = {resource["kind"]: resource for resource in built(f"clusters/{environment}/root")}
    assert resources.keys() == {"Application", "ConfigMap"}
    assert resources["Application"]["spec"]["source"]["path"] == f"manifests/clusters/{environment}"
    assert resources["ConfigMap"]["metadata"]["name"] == "argocd-cm"
    assert resources["ConfigMap"]["data"].keys() == {"resource.customizations.health.argoproj.io_Application"}
    assert (
        resources["ConfigMap"]["metadata"]["annotations"]["argocd.argoproj.io/sync-options"]
        == "Prune=false,Delete=false"
    )


def test_the_root_deploys_itself_unchanged(environment: str) -> None:
    for kind in ("Application", "ConfigMap"):
        by_hand = named(built(f"clusters/{environment}/root"), kind)
        assert by_hand.items() <= named(built(f"clusters/{environment}"), kind).items()


def test_the_root_does_not_wait_for_its_own_health(environment: str) -> None:
    """It is one of the things that it deploys; tests/cluster/test_gitops.py shows the rule at work."""
    root = {resource["kind"]: resource for resource in built(f"clusters/{environment}/root")}
    [rule] = root["ConfigMap"]["data"].values()
    assert f'if obj.metadata.name == "{root["Application"]["metadata"]["name"]}" then' in rule


def test_operators_come_before_the_platform_and_the_platform_before_promotions(environment: str) -> None:
    applications = named(built(f"clusters/{environment}"), "Application")
    waves = {name: wave(app) for name, app in applications.items() if name != "understudy-root"}
    assert waves.pop("understudy") == 1
    assert waves.pop("understudy-promotions", 2) == 2
    assert waves
    assert set(waves.values()) == {0}
    assert applications["understudy"]["spec"]["source"]["path"] == f"manifests/overlays/{environment}"


def test_configuration_comes_before_its_readers(environment: str) -> None:
    resources = built(f"overlays/{environment}")
    waves = {(resource["kind"], resource["metadata"]["name"]): wave(resource) for resource in resources}
    first = [number for (kind, _), number in waves.items() if kind in CONFIGURATION]
    assert max(first) < waves["Deployment", "mlflow"] == 0
    assert waves["Namespace", "understudy"] == min(waves.values())
    secrets = [number for (kind, _), number in waves.items() if kind == "ExternalSecret"]
    assert not secrets or max(secrets) < waves["Job", "mlflow-upgrade"] < 0


def test_flux_waits_for_the_same_order(environment: str) -> None:
    applications = named(built(f"clusters/{environment}"), "Application")
    kustomizations = named(built(f"clusters/{environment}/flux"), "Kustomization")
    assert kustomizations.keys() == applications.keys()
    after = {
        name: {dependency["name"] for dependency in kustomizations[name]["spec"].get("dependsOn", ())}
        for name in kustomizations
    }
    operators = {name for name in applications if wave(applications[name]) == 0 and name != "understudy-root"}
    assert after["understudy"] == operators
    assert after.get("understudy-promotions", {"understudy"}) == {"understudy"}
    assert all(kustomizations[name]["spec"]["wait"] for name in kustomizations if name != "understudy-root")
    assert kustomizations["understudy"]["spec"]["path"] == f"./manifests/overlays/{environment}"


def test_both_engines_take_the_same_releases_of_operators(environment: str) -> None:
    sources = [app["spec"]["source"] for app in named(built(f"clusters/{environment}"), "Application").values()]
    argo = {(source["repoURL"], source["targetRevision"]) for source in sources if "chart" not in source}
    flux = built(f"clusters/{environment}/flux")
    repositories = [repository["spec"] for repository in named(flux, "GitRepository").values()]
    assert {(spec["url"], next(iter(spec["ref"].values()))) for spec in repositories} == argo
    charts = {(source["chart"], source["targetRevision"]) for source in sources if "chart" in source}
    [release] = named(built("flux/external-secrets/release"), "HelmRelease").values()
    spec = release["spec"]["chart"]["spec"]
    assert charts <= {(spec["chart"], spec["version"])}


def test_no_application_deletes_its_resources_with_itself(environment: str) -> None:
    for app in named(built(f"clusters/{environment}"), "Application").values():
        assert "finalizers" not in app["metadata"]
    for kustomization in named(built(f"clusters/{environment}/flux"), "Kustomization").values():
        assert kustomization["spec"]["deletionPolicy"] == "Orphan"


@pytest.mark.parametrize("path", [f"overlays/{name}/promotions" for name in OVERLAYS])
def test_the_namespace_with_the_promoters_secret_stays(path: str) -> None:
    [namespace] = named(built(path), "Namespace").values()
    notes = namespace["metadata"]["annotations"]
    assert notes["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
    assert notes["kustomize.toolkit.fluxcd.io/prune"] == "disabled"
