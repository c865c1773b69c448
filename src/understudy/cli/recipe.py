"""understudy recipe: the recipe's schema, and a recipe with all that it leaves open filled in."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.output import print_json

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe's YAML file.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=VALUE", help="Change a value.")]

app = typer.Typer(no_args_is_help=True, help="Look at recipes.")


@app.command()
def schema() -> None:
    """Print the JSON schema of a recipe, for editors."""
    from understudy.recipe.file import schema

    print_json(schema())


@app.command()
def show(recipe: RecipePath, overrides: Overrides = None) -> None:
    """Print the complete recipe: every default filled in, every change made."""
    from understudy.recipe.file import dump, load

    typer.echo(dump(load(recipe, overrides or ())), nl=False)
