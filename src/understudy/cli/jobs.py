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
    jobs = _cluster_jobs(namespace)
    if as_json:
        print_json([job.__dict__ for job in jobs])
        return
    rows = [[job.name, job.kind, job.run, job.step, job.stage, duration(job.age), job.orphan] for job in jobs]
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

    orphans = [orphan for orphan in _cluster_jobs(namespace) if orphan.orphan]
    for orphan in orphans:
        print(f"{orphan.name}: {orphan.orphan}")
    if not orphans:
        print("there are no orphans")
    elif yes or typer.confirm("Remove all this?"):
        kube = _namespace(namespace)
        for orphan in orphans:
            remove(kube, orphan)
        print(f"{len(orphans)} removed")


def _cluster_jobs(namespace: str | None) -> "list[ClusterJob]":
    from understudy.runs.orphans import list_jobs

    return list_jobs(_namespace(namespace), time.time())


def _namespace(name: str | None) -> "Kube":
    from understudy.kube.api import Kube

    kube = Kube(name)
    if not kube.has_namespace():
        raise InputError(f"there is no namespace {kube.namespace}; give another one with -n")
    return kube
