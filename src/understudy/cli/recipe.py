"""understudy recipe: print the schema, print a recipe with its defaults, and check a recipe."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.output import print_json
from understudy.errors import printable

if TYPE_CHECKING:
    from understudy.recipe import Recipe
    from understudy.recipe.file import Written
    from understudy.steps.recipe_check import Findings

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
    """Print the complete recipe, with every default and override."""
    from understudy.recipe.file import dump, load

    typer.echo(dump(load(recipe, overrides or ())), nl=False)


@app.command()
def check(recipe: RecipePath, overrides: Overrides = None) -> None:
    """List all problems of a recipe on this machine, before anything is read or trained.

    Model types and their settings, paths, modules of factories, the hub's response, and whether the data can be enough
    for the gate. `understudy run` makes the same checks before it begins. Exit codes: 0 no problem, 2 a problem.
    """
    written, findings = checked(recipe, overrides or (), waits_for_hub=False)
    typer.echo(f"{recipe}: no errors found")
    for note in findings.notes:
        typer.echo(f"note: {printable(note)}")
    for item in findings.unknown:
        typer.echo(f"not checked: {item}")
    typer.echo("not checked before a run: whether every record can be read; ingest does that, before any training")
    settings: dict[str, list[str]] = {"whether the models can be built from their values": []}
    for setting, question in _model_settings(written.recipe):
        settings.setdefault(question, []).append(setting)
    for question, names in settings.items():
        item = ": ".join(filter(None, (", ".join(names), question)))
        typer.echo(f"not checked before a run: {item}; tried before the first training")


def _model_settings(recipe: "Recipe") -> Iterator[tuple[str, str]]:
    """Settings about parts of a model, which can only be checked on a built model, each with the open question."""
    from understudy.recipe import degrees
    from understudy.recipe.learners import trainings

    for training in trainings(recipe):
        train, resources, path = training.train, training.resources, f"{training.path}.train"
        if train.optimizer.no_decay is not None:
            yield f"{path}.optimizer.no_decay", "whether there are such parameters"
        if train.lora:
            yield f"{path}.lora.modules", "whether the model has such layers"
        yield f"{path}.batch_size", "whether the model can learn from the smallest part of a batch"
        if train.strategy == "auto":
            continue
        spread = degrees(train.strategy, resources.nodes, resources.processes)
        if spread.head_parts > 1:
            yield f"{path}.strategy", f"whether {spread} divides the model's attention heads"
        if spread.pp > 1:
            yield f"{path}.strategy", f"whether {spread} can cut the model into stages"


def checked(
    path: Path, overrides: Sequence[str], *, elsewhere: bool = False, waits_for_hub: bool = True
) -> "tuple[Written, Findings]":
    """Read a recipe, make all checks that are possible now, and return it with their findings.

    Args:
        path: the recipe's file.
        overrides: a.b.c=value.
        elsewhere: whether the run will be on other machines, with other paths and modules.
        waits_for_hub: whether an unreachable hub is an error.

    Raises:
        InputError: a line for each problem, with the file's line and the fix.
    """
    from understudy.models.user_code import search_path
    from understudy.recipe.file import Refused, read
    from understudy.steps.recipe_check import Here, findings

    machine = Here(not elsewhere, not elsewhere, search_path(path.parent), waits_for_hub and not elsewhere)
    try:
        written = read(path, overrides)
    except Refused as refused:
        further = findings(refused.partial, machine).problems if refused.partial else ()
        # Refused values have their defaults there: only sections from the file itself are checked further.
        sections = [problem for problem in further if not {"model", "source"}.isdisjoint(problem[0][1:3])]
        raise refused.source.error([*refused.problems, *sections]) from refused
    all_findings = findings(written.recipe, machine)
    if all_findings.problems:
        raise written.source.error(all_findings.problems)
    return written, all_findings


def decided(written: "Written") -> "Written":
    """A recipe with `auto` replaced by the degrees that the plan ranks first.

    Raises:
        InputError: nothing fits, or the hardware of a training is not given.
    """
    if not written.recipe.undecided:
        return written
    from understudy.plan import automatic

    return replace(written, recipe=automatic.decided(written.recipe, lambda text: typer.echo(text, err=True)))


def for_pods(written: "Written") -> "Recipe":
    """The recipe of decided(), after a check that its pods have at least the memory that is certainly needed.

    Raises:
        InputError: as decided(), or a job's pods have too little memory.
    """
    recipe = decided(written).recipe
    if any(resources.memory for resources in recipe.resources.by_job.values()):
        from understudy.plan.pods import refuse_small_pods

        refuse_small_pods(recipe)
    return recipe
