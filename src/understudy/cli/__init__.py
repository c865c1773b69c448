"""The command `understudy`. Each command imports its heavy dependencies inside itself, not at the top of its module."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from understudy import __version__, installation
from understudy.cli import audit, backup, doctor, init, jobs, plan, recipe, review, run, store, submit, ui
from understudy.cli import compile as compile_command
from understudy.cli.output import print_error
from understudy.cli.settings import Settings
from understudy.cli.verbosity import VerbosityOptions, apply
from understudy.errors import UnderstudyError

app = typer.Typer(
    cls=VerbosityOptions,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(init.init)
app.command()(run.run)
app.command()(plan.plan)
app.command("compile")(compile_command.compile_)
app.command()(submit.submit)
app.add_typer(recipe.app, name="recipe")
app.add_typer(store.app, name="store")
app.add_typer(backup.app, name="backup")
app.add_typer(jobs.app, name="jobs")
app.add_typer(review.app, name="review")
app.add_typer(audit.app, name="audit")
app.command()(doctor.doctor)
app.command()(ui.ui)


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"understudy {__version__}")
        raise typer.Exit


@app.callback()
def understudy(
    ctx: typer.Context,
    home: Annotated[
        Path, typer.Option(envvar="UNDERSTUDY_HOME", help="Folder of the store and of the local MLflow.")
    ] = Path(".understudy"),
    tracking_uri: Annotated[
        str | None, typer.Option(envvar="MLFLOW_TRACKING_URI", help="MLflow server; a local SQLite file without one.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more about each step.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """One recipe in, a proven student model in the registry out.

    Exit codes: 0 done, 1 something failed, 2 the input is wrong, 3 rejected by the gate, 130 stopped.
    """
    installation.check()
    ctx.obj = apply(Settings(home, tracking_uri, quiet, verbose))


def main() -> None:
    """The console's entry point: an UnderstudyError is one message on stderr and an exit code."""
    try:
        app(prog_name="understudy")
    except UnderstudyError as error:
        print_error(str(error))
        sys.exit(error.exit_code)
