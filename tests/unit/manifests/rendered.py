"""Manifests as kustomize renders them, and parts of them."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests import ROOT
from understudy.kube.settings import CONFIG

MANIFESTS = ROOT / "manifests"
OVERLAYS = sorted(path.parent.name for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))
KUBECTL = shutil.which("kubectl")


@cache
def built(path: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(KUBECTL), "kustomize", str(MANIFESTS / path)], capture_output=True, text=True, check=True
    )
    return list(yaml.safe_load_all(done.stdout))


def pods(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    templates = []
    for resource in resources:
        spec = resource.get("spec", {})
        if resource["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec and "containers" in spec["template"].get("spec", {}):
            templates.append(spec["template"])
    return templates


def named(resources: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {resource["metadata"]["name"]: resource for resource in resources if resource["kind"] == kind}


def settings(resources: list[dict[str, Any]]) -> Any:
    return yaml.safe_load(named(resources, "ConfigMap")[CONFIG]["data"]["cluster.yaml"])


def server(resources: list[dict[str, Any]]) -> dict[str, Any]:
    container: dict[str, Any] = named(resources, "Deployment")["mlflow"]["spec"]["template"]["spec"]["containers"][0]
    return container


def dev_with(component: str, tmp_path: Path) -> list[dict[str, Any]]:
    """The overlay dev with one component more."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    return with_component(component, tmp_path / "manifests")


def with_component(component: str, manifests: Path, overlay: str = "dev") -> list[dict[str, Any]]:
    kustomization = manifests / "overlays" / overlay / "kustomization.yaml"
    last = "  - ../../components/settings"
    text = kustomization.read_text().replace(last, f"  - ../../components/{component}\n{last}")
    kustomization.write_text(text)
    return built(str(kustomization.parent))
