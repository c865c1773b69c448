"""understudy run --on cluster: submit a run to the cluster that KUBECONFIG names, and follow it."""

import signal
from typing import TYPE_CHECKING

import typer

from understudy.cli.compile import print_pod_requirements
from understudy.errors import STOPPED

if TYPE_CHECKING:
    from understudy.recipe import Recipe


def run_there(recipe: "Recipe", namespace: str | None, quiet: bool, *, profile: bool) -> int:
    """Run a recipe in a cluster. Ctrl-C or SIGTERM ends only the following, not the run.

    Returns:
        The run's exit code.
    """
    from understudy.kube.api import Kube
    from understudy.runs import following, submission

    kube = Kube(namespace)
    cluster = submission.settings(kube)
    submission.check(kube, cluster, recipe)
    print_pod_requirements(recipe, cluster.mount)
    name = submission.submit(kube, cluster, recipe, profile=profile)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not quiet:
            typer.echo(f"run {name} in namespace {kube.namespace}")
        return following.follow(kube, name, lambda line: None if quiet else typer.echo(line))
    except KeyboardInterrupt:
        typer.echo(
            f"the run continues; understudy jobs stop {name} -n {kube.namespace} ends it, "
            f"kubectl -n {kube.namespace} logs -f job/{name} shows it",
            err=True,
        )
        return STOPPED
