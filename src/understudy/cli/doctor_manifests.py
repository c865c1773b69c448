"""understudy doctor --manifests: missing settings and inconsistencies in an environment's manifests."""

import re
from collections.abc import Iterator
from pathlib import Path

from understudy.cli.check import Check
from understudy.errors import InputError
from understudy.kube import manifests, operators
from understudy.kube.kind import TRAINJOB
from understudy.kube.manifests import Line
from understudy.kube.objects import KubernetesObject
from understudy.kube.operators import Version
from understudy.kube.settings import CONFIG, Cluster, read
from understudy.launch.kubernetes.rendering import trainjob

PLACEHOLDER = re.compile(r"[\w.-]*\bexample\.(com|org|net)\b[^\s,\"']*|\b(192\.0\.2|198\.51\.100|203\.0\.113)\.\d+\b")
DEVELOPMENT = "only-for-development"
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
IMAGES = ("trainer", "launcher", "mlflow")
"""The images of a release, in this order."""
PROTECTED = {
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}
"""The annotations that keep Argo CD and Flux from pruning an object that is gone from Git."""
RELEASED = {"kubernetes-sigs/kueue": "Kueue", "kubeflow/trainer": "Trainer", "external-secrets": "External Secrets"}
"""Operators by a part of the address of their releases."""
Objects = list[KubernetesObject]


def checks(folder: Path) -> Iterator[Check]:
    """Check a folder of manifests and those that it deploys, without a cluster.

    Raises:
        InputError: it is not a kustomization, or cannot be built.
    """
    command = manifests.tool()
    if command is None:
        fix = "install kubectl or kustomize: without one, only the files are checked, not the objects built of them"
        yield Check("kustomize", "neither kubectl nor kustomize is installed", fix)
    built = _built(command, folder) if command else {folder.resolve(): []}
    paths = list(dict.fromkeys(path for built_folder in built for path in manifests.files(built_folder)))
    source = list(manifests.lines(paths))
    settings = manifests.settings(paths)
    if not settings:
        yield Check(
            str(folder), "reads no settings", "name manifests/clusters/ENV, or an overlay with ../../settings/ENV"
        )
        return
    yield Check(str(folder), f"{settings['environment']}: {len(built)} folders, {len(paths)} files")
    yield from _placeholders(source)
    yield from _release(source, settings)
    if settings["environment"] == "production":
        yield from _production(source)
    manifest_objects = [manifest_object for objects in built.values() for manifest_object in objects]
    yield from _images(manifest_objects, settings["environment"])
    yield from _unprotected(manifest_objects)
    yield from _unfit(manifest_objects)
    yield from _jobs(manifest_objects, _location_of(source, "cluster.yaml:"))


def _built(command: list[str], folder: Path) -> dict[Path, Objects]:
    """The objects of a folder and of those that it deploys, by folder."""
    built: dict[Path, Objects] = {}
    waiting = [folder.resolve()]
    while waiting:
        current = waiting.pop(0)
        if current in built:
            continue
        address = manifests.settings(manifests.files(current)).get("repository", "")
        built[current] = manifests.rendered(command, current)
        waiting += manifests.folders(current, built[current], address)
    return built


def _location_of(source: list[Line], text: str) -> str:
    """The file and line of a text; the text itself if there is none."""
    return next((line.location for line in source if text in line.text), text)


def _placeholders(source: list[Line]) -> Iterator[Check]:
    for line in source:
        if match := PLACEHOLDER.search(line.text):
            key = line.text.partition(":")[0].strip(" -")
            yield Check(line.location, f"{key}: {match[0]} is a placeholder", "put your own in")


def _release(source: list[Line], settings: dict[str, str]) -> Iterator[Check]:
    """Check that the release names its images, in production by digest."""
    location = _location_of(source, "  release:")
    images = settings["release"].split(" ")
    if [image.partition(":")[0] for image in images] != list(IMAGES):
        yield Check(
            location, f"release: {settings['release']}", f"name {', '.join(IMAGES)} in this order, a blank between"
        )
        return
    for image in images:
        if settings["environment"] == "production" and not DIGEST.search(image):
            fix = "write NAME:TAG@sha256:DIGEST: a tag can be moved to another image"
            yield Check(location, f"release: {image} has no digest", fix)
        elif not image.partition(":")[2]:
            yield Check(location, f"release: {image} has no tag", "write NAME:TAG")


def _production(source: list[Line]) -> Iterator[Check]:
    for line in source:
        if DEVELOPMENT in line.text:
            yield Check(line.location, f"{DEVELOPMENT}: everybody knows it", "take the password from your secret store")
    for line in source:
        if line.path.name == "policy.yaml" and line.text.strip() == "reviewers: {}":
            yield Check(line.location, "reviewers: nobody", "name who may approve promotions, with their public keys")


def _images(objects: Objects, environment: str) -> Iterator[Check]:
    """Check for images without a registry, and in production without a digest."""
    for entry in objects:
        for image in _containers(entry.get("spec", {})):
            name = f"{entry['kind']} {entry['metadata']['name']}"
            if "/" not in image:
                fix = "list it in components/settings/kustomization.yaml, twice: release and registry"
                yield Check(name, f"image {image} has no registry", fix)
            elif environment == "production" and "/understudy-" not in image and not DIGEST.search(image):
                yield Check(name, f"image {image} has no digest", "write @sha256:DIGEST behind it")


def _containers(spec: KubernetesObject) -> Iterator[str]:
    """The images of an object's pods."""
    pod = spec.get("jobTemplate", {}).get("spec", spec).get("template", {}).get("spec", {})
    for container in (*pod.get("containers", ()), *pod.get("initContainers", ())):
        yield str(container.get("image", ""))


def _unprotected(objects: Objects) -> Iterator[Check]:
    """Check for claims and namespaces that a GitOps engine would prune."""
    for entry in objects:
        if entry["kind"] not in ("PersistentVolumeClaim", "Namespace"):
            continue
        notes = entry["metadata"].get("annotations") or {}
        if lacking := [f"{key}: {value}" for key, value in PROTECTED.items() if notes.get(key) != value]:
            name = f"{entry['kind']} {entry['metadata']['name']}"
            yield Check(name, "would be removed when it is gone from Git", f"annotate it with {'; '.join(lacking)}")


def _releases(objects: Objects) -> dict[str, Version]:
    """The operators' releases that Applications, GitRepositories and HelmReleases name."""
    revisions: list[tuple[str, str]] = []
    for entry in objects:
        spec = entry.get("spec", {})
        if entry["kind"] == "Application":
            revisions.append((spec["source"]["repoURL"], spec["source"]["targetRevision"]))
        elif entry["kind"] == "GitRepository":
            revisions.append((spec["url"], spec["ref"].get("tag", "")))
        elif entry["kind"] == "HelmRelease":
            revisions.append((spec["chart"]["spec"]["chart"], spec["chart"]["spec"]["version"]))
    releases = {
        name: operators.release(revision)
        for address, revision in revisions
        for part, name in RELEASED.items()
        if part in address
    }
    return {name: version for name, version in releases.items() if version}


def _unfit(objects: Objects) -> Iterator[Check]:
    """Check for objects of an API version that the operator's release does not serve."""
    releases = _releases(objects)
    used = dict.fromkeys(tuple(entry["apiVersion"].split("/")) for entry in objects if "/" in entry["apiVersion"])
    for group, version in used:
        apis = [api for api in operators.SERVED if api.group == group and api.operator in releases]
        if not apis:
            continue
        release = releases[apis[0].operator]
        serves = frozenset(api.version for api in apis if api.is_in(release))
        subject = f"{apis[0].operator} {operators.shown(release)}"
        yield Check(subject, f"{group}/{version}", operators.other_version(group, version, serves))


def _jobs(objects: Objects, location: str) -> Iterator[Check]:
    """Check that the settings of jobs fit the other objects."""
    for entry in objects:
        if manifests.is_named(entry, "ConfigMap", CONFIG) and "cluster.yaml" in entry["data"]:
            try:
                cluster = read(entry["data"]["cluster.yaml"], location)
            except InputError as error:
                yield Check(location, "cannot be used", str(error))
                return
            yield from _lacking(objects, cluster, location)


def _lacking(objects: Objects, cluster: Cluster, location: str) -> Iterator[Check]:
    def has(kind: str, name: str) -> bool:
        return any(manifests.is_named(entry, kind, name) for entry in objects)

    releases = _releases(objects)
    if cluster.queue and not has("LocalQueue", cluster.queue):
        yield Check(
            location, f"queue: there is no LocalQueue {cluster.queue}", "add components/kueue, or leave queue out"
        )
    if cluster.queue and "Kueue" in releases:
        fix = operators.queueing(releases["Kueue"], releases.get("Trainer"), cluster.launcher)
        yield Check(f"Kueue {operators.shown(releases['Kueue'])}", f"queues {cluster.launcher}s", fix)
    if cluster.kind is TRAINJOB and not has("TrainingRuntime", trainjob.RUNTIME):
        fix = "add components/trainer to the overlay, or leave launcher out"
        yield Check(location, f"launcher: there is no TrainingRuntime {trainjob.RUNTIME}", fix)
    if cluster.kind is TRAINJOB and releases.get("Trainer", operators.TRAINER) < operators.TRAINER:
        yield Check(location, "launcher: the Trainer is too old", f"take {operators.shown(operators.TRAINER)} or later")
    yield from _claim(objects, cluster, location)


def _claim(objects: Objects, cluster: Cluster, location: str) -> Iterator[Check]:
    claims = [entry for entry in objects if manifests.is_named(entry, "PersistentVolumeClaim", cluster.claim)]
    if not claims:
        yield Check(
            location, f"claim: there is no claim {cluster.claim}", "give the claim of base/claim.yaml this name"
        )
    for claim in claims:
        modes = claim["spec"]["accessModes"]
        if "ReadWriteMany" not in modes and not cluster.one_node:
            fix = "set one_node: true; docs/operating/cluster.md: Without ReadWriteMany"
            yield Check(location, f"claim: {cluster.claim} is {', '.join(modes)}", fix)
