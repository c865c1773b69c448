"""understudy compile: the recipe's pipeline for a KFP server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.recipe import Overrides, RecipePath, for_pods

if TYPE_CHECKING:
    from understudy.recipe import Recipe


def compile_(
    recipe: RecipePath,
    images: Annotated[
        str, typer.Option(help="PREFIX:TAG of the images, e.g. registry.example.com/ml/understudy:0.1.0")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write into.")] = Path("compiled"),
    overrides: Overrides = None,
) -> None:
    """Write the pipeline's IR, and the Pipeline and PipelineVersion objects that Kubernetes takes."""
    from understudy.pipelines.compiled import write
    from understudy.pipelines.pods import MOUNT
    from understudy.recipe.file import read

    pod_recipe = for_pods(read(recipe, overrides or ()))
    for path in write(pod_recipe, images, output):
        typer.echo(path)
    print_pod_requirements(pod_recipe, MOUNT)


def print_pod_requirements(recipe: "Recipe", mount: str) -> None:
    """Print a note for each path or module of this machine that pods need, except those on the store's volume."""
    for field, needed in _of_this_machine(recipe).items():
        if Path(needed).is_relative_to(mount):
            continue
        typer.echo(f"note: {field}: {needed} must exist in the pods too, under the same path or module name", err=True)


def _of_this_machine(recipe: "Recipe") -> dict[str, str]:
    """The local paths and modules of a recipe, by their place in it."""
    data = getattr(recipe.data.source, "path", None)
    is_local = data and (Path(data).is_absolute() or not recipe.data.source.path_may_be_hub_id)
    paths = {"data.source.path": data if is_local else None}
    for path, model in recipe.models.items():
        paths[f"{path}.factory"] = getattr(model, "factory", None)
        folder = getattr(model, "pretrained", None)
        paths[f"{path}.pretrained"] = folder if folder and Path(folder).is_dir() else None
    return {field: needed for field, needed in paths.items() if needed}
