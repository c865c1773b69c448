"""A recipe's pipeline as files for a cluster: kfp's IR, and Kubernetes objects with the same content."""

import re
from functools import partial
from pathlib import Path
from typing import Any

from kfp.compiler import Compiler
from kfp.compiler.compiler_utils import KubernetesManifestOptions

from understudy.errors import InputError, disk_errors
from understudy.graph import nodes, trainings
from understudy.pipelines.distillation import REJECTED, build
from understudy.pipelines.pods import START, fetching, settle
from understudy.recipe import ArchitectureModel, FactoryModel, Model, PretrainedModel, Recipe
from understudy.recipe.tasks import load
from understudy.store.files import hash_file

ROLE = "understudy/"  # the components' images: understudy/launcher, understudy/trainer
EXECUTOR = "exec-"
"""Before a task's name, in the compiled pipeline."""
PREFIX = re.compile(r"[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*")
SPEC, OBJECTS = "# PIPELINE DEFINITION", "apiVersion: pipelines.kubeflow.org/"
"""The first words of kfp's files."""
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def write(recipe: Recipe, images: str, folder: Path) -> list[Path]:
    """Compile a recipe's pipeline. The same recipe and images give the same bytes.

    NAME.yaml is the IR, for the KFP UI and client. NAME.kubernetes.yaml contains a Pipeline and then a
    PipelineVersion, for kubectl and GitOps. A version's spec is immutable, so its name ends with a hash of the IR.

    Args:
        recipe: the recipe.
        images: PREFIX:TAG; a component that runs on the image understudy/ROLE gets PREFIX-ROLE:TAG. So
            registry.example/ml/understudy:1.2 means registry.example/ml/understudy-launcher:1.2 and -trainer:1.2.
        folder: the output folder, created if missing.

    Returns:
        The files, the IR first.

    Raises:
        InputError: images is not a prefix and a fixed tag, or the folder cannot be written, or it has another file of
            such a name, such as the recipe.
    """
    prefix, tag = _parsed(images)
    pipeline = build(recipe, partial(settle, fetching=fetching(recipe)))
    _set_images(pipeline, prefix, tag, recipe)
    spec, objects = folder / f"{recipe.name}.yaml", folder / f"{recipe.name}.kubernetes.yaml"
    for path, first_line in ((spec, SPEC), (objects, OBJECTS)):
        _check_overwritable(path, first_line)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        Compiler().compile(pipeline, str(spec))
        options = KubernetesManifestOptions(
            pipeline_name=recipe.name,
            pipeline_version_name=f"{recipe.name}-{hash_file(spec)[:12]}",
            include_pipeline_manifest=True,
        )
        Compiler().compile(pipeline, str(objects), kubernetes_manifest_format=True, kubernetes_manifest_options=options)
    return [spec, objects]


def _check_overwritable(path: Path, first_line: str) -> None:
    """Refuse to overwrite a file that is not a compiled pipeline.

    Raises:
        InputError: the file exists, and does not begin like a compiled one.
    """
    with disk_errors(path.parent):
        if path.is_file() and not path.read_bytes().startswith(first_line.encode()):
            raise InputError(
                f"{path}: is not a compiled pipeline, and is not overwritten. Give another folder with -o."
            )


def _parsed(images: str) -> tuple[str, str]:
    prefix, _, tag = images.rpartition(":")
    if not PREFIX.fullmatch(prefix) or not TAG.fullmatch(tag) or tag == "latest":
        raise InputError(
            f"--images {images}: give PREFIX:TAG, such as registry.example/ml/understudy:1.2, with a tag that is never "
            "given to another image; it stands for PREFIX-launcher:TAG and PREFIX-trainer:TAG"
        )
    return prefix, tag


def _set_images(pipeline: Any, prefix: str, tag: str, recipe: Recipe) -> None:
    """Set the real images, after compiling: kfp's component objects are shared by all pipelines built here.

    The steps that launch a training need no torch, unless they fetch and convert a pretrained model. A step that
    reads a model's custom code, for its key or to register it, needs the image that has that code. Every training
    compares all pretrained models with the data. Conversations are prepared and shown with the libraries that serve
    them.
    """
    models = {node.name: recipe.models[node.model] for node in trainings(recipe)}
    trainers = {name for name, model in models.items() if not isinstance(model, ArchitectureModel)}
    if any(isinstance(model, PretrainedModel) for model in models.values()):
        trainers |= models.keys()
    if any(map(_has_own_code, recipe.models.values())):
        trainers |= {node.name for node in nodes(recipe) if node.kind.reads_code} | {REJECTED}
    trainers |= {node.name for node in nodes(recipe) if node.kind.on_trainer}
    if "messages" in load(recipe.task).FIELDS.values():
        trainers |= {node.name for node in nodes(recipe)} | {REJECTED}
    trainers |= {START} if trainers else set()
    for name, executor in pipeline.pipeline_spec.deployment_spec["executors"].items():
        container = executor["container"]
        is_trainer = name.removeprefix(EXECUTOR) in trainers
        role = "trainer" if is_trainer else container["image"].removeprefix(ROLE)
        container["image"] = f"{prefix}-{role}:{tag}"


def _has_own_code(model: Model) -> bool:
    return isinstance(model, FactoryModel) or (isinstance(model, PretrainedModel) and model.trust_remote_code)
