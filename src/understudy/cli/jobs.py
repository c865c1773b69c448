"""understudy jobs: list runs and trainings in a cluster, end a run, and remove orphans."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.output import print_json, print_table
from understudy.errors import InputError
from understudy.store.runs import duration

if TYPE_CHECKING:
    from understudy.kube.api import Kube
    from understudy.runs.orphans import ClusterJob

app = typer.Typer(no_args_is_help=True, help="Look after the runs and trainings in a cluster.")
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="The current context's without one.")]


@app.command("ls")
def list_(
    namespace: Namespace = None, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """List runs and trainings, the oldest first, and which of them are orphans."""
    found = _cluster_jobs(namespace)
    if as_json:
        print_json([one.__dict__ for one in found])
        return
    rows = [[one.name, one.kind, one.run, one.step, one.stage, duration(one.age), one.orphan] for one in found]
    print_table(("name", "kind", "run", "step", "state", "age", "orphan"), rows)


@app.command()
def stop(run: Annotated[str, typer.Argument(help="The run's name.")], namespace: Namespace = None) -> None:
    """End a run. Its trainings take a checkpoint first; running the recipe again goes on from there."""
    from understudy.runs.orphans import stop as stop_run

    kube = _namespace(namespace)
    if not stop_run(kube, run):
        raise InputError(f"namespace {kube.namespace}: no run {run} is active; understudy jobs ls lists all")
    print(f"{run}: ending; its trainings take a checkpoint within their grace period")


@app.command()
def gc(
    namespace: Namespace = None, yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False
) -> None:
    """Remove orphans: trainings whose run has ended, was terminated, or no longer exists."""
    from understudy.runs.orphans import remove

    left = [one for one in _cluster_jobs(namespace) if one.orphan]
    for one in left:
        print(f"{one.name}: {one.orphan}")
    if not left:
        print("there are no orphans")
    elif yes or typer.confirm("Remove all this?"):
        kube = _namespace(namespace)
        for one in left:
            remove(kube, one)
        print(f"{len(left)} removed")


def _cluster_jobs(namespace: str | None) -> "list[ClusterJob]":
    from understudy.runs.orphans import list_jobs

    return list_jobs(_namespace(namespace), time.time())


def _namespace(name: str | None) -> "Kube":
    from understudy.kube.api import Kube

    kube = Kube(name)
    if not kube.has_namespace():
        raise InputError(f"there is no namespace {kube.namespace}; give another one with -n")
    return kube
