"""understudy submit: the recipe's pipeline as a run on a KFP server."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.compile import print_pod_requirements
from understudy.cli.recipe import Overrides, RecipePath, checked, for_pods
from understudy.cli.settings import Settings
from understudy.errors import DONE, REJECTED, InputError, UnderstudyError


def submit(
    ctx: typer.Context,
    recipe: RecipePath,
    images: Annotated[str, typer.Option(help="PREFIX:TAG of the images.")],
    host: Annotated[str, typer.Option(envvar="KFP_HOST", help="The KFP API server's address.")],
    ui: Annotated[str | None, typer.Option(envvar="KFP_UI", help="KFP's pages. Default: --host.")] = None,
    overrides: Overrides = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token; KFP_TOKEN holds it otherwise.")] = None,
    user: Annotated[
        str | None,
        typer.Option(envvar="KFP_USER", help="The request's user, if --host is KFP itself, without a gateway."),
    ] = None,
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="The profile's, in Kubeflow.")] = None,
    experiment: Annotated[str | None, typer.Option(help="KFP's experiment. Default: the recipe's name.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run, and end with its verdict.")] = False,
) -> None:
    """Send a recipe's pipeline to a KFP server, and print where its run is shown.

    With --wait the exit code is the run's: 0 registered, 1 failed, 3 rejected by the gate. The verdict comes from
    MLflow, so --tracking-uri or MLFLOW_TRACKING_URI has to name the cluster's.
    """
    from understudy.pipelines import submission
    from understudy.pipelines.pods import MOUNT

    settings: Settings = ctx.obj
    pod_recipe = for_pods(checked(recipe, overrides or (), elsewhere=True)[0])
    if wait and not settings.tracking_uri_option:
        raise InputError("--wait: the verdict is in the cluster's MLflow; name it with --tracking-uri")
    server = submission.Server(host, namespace, partial(_token, token_file), ui, user)
    run = submission.submit(server, pod_recipe, images, experiment)
    typer.echo(server.page(run))
    print_pod_requirements(pod_recipe, MOUNT)
    if not wait:
        return
    report = partial(_print_unless_quiet, quiet=settings.quiet)
    code = submission.follow(server, run, report)
    raise typer.Exit(_by_verdict(code, settings.tracking_uri, run, report))


def _print_unless_quiet(text: str, *, quiet: bool) -> None:
    if not quiet:
        typer.echo(text)


def _by_verdict(code: int, uri: str, run: str, report: Callable[[str], None]) -> int:
    """A run's exit code; REJECTED also if fail_when_rejected has made the run fail in KFP."""
    from understudy.registry.verdict import verdict_of

    try:
        verdict = verdict_of(uri, run)
    except UnderstudyError:
        if code == DONE:
            raise
        return code  # most failed runs have no verdict
    if verdict.word == "rejected":
        report(f"rejected by {verdict.rules}" if verdict.rules else "rejected")
        return REJECTED
    if code == DONE:
        report(verdict.word)
    return code


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("KFP_TOKEN")
    try:
        return path.read_text().strip()
    except OSError as error:
        raise InputError(f"--token-file {path}: cannot be read ({error.strerror})") from error
