"""understudy compile: the recipe's pipeline for a KFP server."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.checkout import checkout
from understudy.cli.recipe import Overrides, RecipePath


def compile_(
    recipe: RecipePath,
    images: Annotated[
        str, typer.Option(help="PREFIX:TAG of the images, e.g. registry.example.com/ml/understudy:0.1.0")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write into.")] = Path(),
    overrides: Overrides = None,
) -> None:
    """Write the pipeline's IR, and the Pipeline and PipelineVersion objects that Kubernetes takes."""
    from understudy.recipe_file import load

    sys.path.insert(0, str(checkout()))
    from pipelines.compiled import write

    for path in write(load(recipe, overrides or []), images, output):
        typer.echo(path)
