"""understudy init: a first recipe for a folder of images or texts."""

import os
import re
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from understudy.errors import InputError, printable


class Example(StrEnum):
    """An example recipe."""

    CHAT = "chat"
    DIGITS = "digits"
    LLM = "llm"
    PYDOC = "pydoc"


def init(
    folder: Annotated[Path, typer.Argument(help="Images in a folder for each label, or text files.")] = Path(),
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The file. Default: the folder's name.")] = None,
    example: Annotated[
        Example | None,
        typer.Option(help="An example instead: digits and pydoc need no data of yours, llm is for a cluster."),
    ] = None,
) -> None:
    """Write a first recipe for a folder of images or texts, sized for a laptop.

    The file is written into the current folder and never over another one.
    """
    if example:
        _write_example(example, folder, output or Path(f"{example}.yaml"))
        return
    from understudy.cli.first_recipe import described, notes, text
    from understudy.cli.recipe import checked
    from understudy.data.survey import survey

    contents = survey(folder)
    name = _name(folder.resolve().name)
    path = output or Path(f"{name}.yaml")
    _write(path, text(contents, name, _from(path, folder), str(path)))
    try:
        _, findings = checked(path, ())
    except InputError:
        path.unlink()  # the error is about the folder, so the recipe is of no use
        raise
    typer.echo(f"found in {folder}: {described(contents)}")
    for note in (*notes(contents), *findings.notes):
        typer.echo(f"note: {printable(note)}")
    _print_next_steps(path)


def _write_example(example: Example, folder: Path, path: Path) -> None:
    if folder != Path():
        raise InputError(f"--example {example}: is not for a folder; leave {folder} out, or --example")
    recipe = (files("understudy") / "recipes" / f"{example}.yaml").read_text(encoding="utf-8")
    _write(path, recipe)
    typer.echo(f"example {example}: {recipe.splitlines()[0].removeprefix('# ')}")
    _print_next_steps(path)


def _write(path: Path, recipe: str) -> None:
    """Write a new file, whole or not at all; an existing one is not overwritten."""
    try:
        content = recipe.encode()
        with path.open("xb") as file:
            try:
                file.write(content)
                file.flush()
            except OSError:
                path.unlink()
                raise
    except UnicodeEncodeError as error:  # raised before the file is created
        raise InputError(f"{str(path)!a}: the name is not UTF-8; give another file with -o") from error
    except FileExistsError as error:
        raise InputError(f"{path}: exists already, and is not overwritten; give another file with -o") from error
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({os.strerror(error.errno or 0)}); give another file with -o"
        ) from error


def _print_next_steps(path: Path) -> None:
    typer.echo(f"wrote {path}")
    typer.echo(f"next: understudy recipe check {path}; understudy plan {path} (memory, time); understudy run {path}")


def _name(folder: str) -> str:
    """A recipe's name from a folder's: lower-case letters, digits and dashes, starting with a letter."""
    dashed = re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")
    fits = len(dashed) > 1 and dashed[0].isalpha()
    return (dashed if fits else f"data-{dashed}")[:40].strip("-")


def _from(path: Path, folder: Path) -> str:
    """A folder's path in a recipe file: relative, unless it is two or more levels up or the file is behind a link.

    If the file's folder is reached through a link, the meaning of `..` depends on whether the link is resolved.
    """
    parent = os.path.abspath(path.parent)
    relative = os.path.relpath(folder.resolve(), parent)
    near = relative.count("..") < 2 and os.path.realpath(parent) == parent
    return relative if near else str(folder.resolve())
