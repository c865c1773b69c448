"""A tree of manifests as kustomize sees it: the files of a folder, and the objects rendered from them."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from understudy.errors import InputError
from understudy.kube.objects import KubernetesObject
from understudy.kube.settings import CONFIG

KUSTOMIZATION = "kustomization.yaml"
COMMENT = re.compile(r"(^|\s)#.*")
TOOLS = (("kubectl", "kustomize"), ("kustomize", "build"))


@dataclass(frozen=True)
class Line:
    """A line of a file, without its comment."""

    path: Path
    number: int
    text: str

    @property
    def location(self) -> str:
        """Its path and number, as editors and compilers write them."""
        directory = Path.cwd()
        path = self.path.relative_to(directory) if self.path.is_relative_to(directory) else self.path
        return f"{path}:{self.number}"


def files(folder: Path) -> list[Path]:
    """The local YAML files that kustomize reads for a folder, each once, the folder's kustomization first.

    Raises:
        InputError: a folder has no kustomization, or an invalid one.
    """
    paths: dict[Path, None] = {}
    _collect(folder.resolve(), paths)
    return list(paths)


def _collect(folder: Path, paths: dict[Path, None]) -> None:
    path = folder / KUSTOMIZATION
    if path in paths:
        return
    paths[path] = None
    content = _read(path)
    for name in (*content.get("resources", ()), *content.get("components", ()), *_patches(content)):
        if "://" in name or "?ref=" in name:
            continue
        target = (folder / name).resolve()
        if target.is_dir():
            _collect(target, paths)
        else:
            paths[target] = None


def _patches(content: dict[str, Any]) -> Iterator[str]:
    yield from (patch["path"] for patch in content.get("patches", ()) if "path" in patch)
    for generator in content.get("configMapGenerator", ()):
        yield from (str(name).rpartition("=")[2] for name in generator.get("files", ()))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; name a folder with a {KUSTOMIZATION}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: is not a kustomization")
    return content


def lines(paths: list[Path]) -> Iterator[Line]:
    """All lines of files, without comments.

    Raises:
        InputError: a file cannot be read.
    """
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}; a kustomization names it") from error
        for number, line in enumerate(text.splitlines(), 1):
            yield Line(path, number, COMMENT.sub("", line))


def settings(paths: list[Path]) -> dict[str, str]:
    """The data of the ConfigMap that describes the environment; empty if there is none."""
    for path in paths:
        if path.name == KUSTOMIZATION:
            continue
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if is_named(document, "ConfigMap", CONFIG) and "environment" in document["data"]:
                return dict(document["data"])
    return {}


def is_named(value: Any, kind: str, name: str) -> bool:
    """Whether something is an object of this kind and name."""
    return isinstance(value, dict) and value.get("kind") == kind and value["metadata"].get("name") == name


def tool() -> list[str] | None:
    """The command that renders a folder; None where neither kubectl nor kustomize is installed."""
    return next(([program, verb] for name, verb in TOOLS if (program := shutil.which(name))), None)


def rendered(command: list[str], folder: Path) -> list[KubernetesObject]:
    """The objects rendered from a folder.

    Raises:
        InputError: kustomize cannot build it.
    """
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{folder}: cannot be built: {done.stderr.strip()}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def folders(folder: Path, objects: list[KubernetesObject], repository: str) -> list[Path]:
    """The folders of this repository that Applications and Kustomizations among the objects deploy.

    Args:
        folder: the source of the objects.
        objects: the objects.
        repository: this repository's address, as the objects name it.
    """
    our_sources = {
        entry["metadata"]["name"]
        for entry in objects
        if entry["kind"] == "GitRepository" and entry["spec"]["url"] == repository
    }
    paths = []
    for entry in objects:
        spec = entry.get("spec", {})
        if entry["kind"] == "Application" and spec["source"]["repoURL"] == repository:
            paths.append(spec["source"]["path"])
        elif entry["kind"] == "Kustomization" and spec["sourceRef"]["name"] in our_sources:
            paths.append(spec["path"])
    return [_below(folder, path) for path in paths]


def _below(folder: Path, path: str) -> Path:
    """The absolute path of a folder of the repository, from another of its folders."""
    for root in folder.resolve().parents:
        if (root / path / KUSTOMIZATION).is_file():
            return (root / path).resolve()
    raise InputError(f"{folder}: deploys {path}, which no folder above it has; a kustomization there is missing")
