"""understudy doctor --cluster --collectives POOL: the bandwidth between a pool's nodes, as training sees it."""

import typer

from understudy.recipe import Resources


def measure(namespace: str | None, pool: str, nodes: int, processes: int, quiet: bool) -> int:
    """Measure, print the job's output and the table, and return the exit code."""
    from understudy.kube.api import Kube
    from understudy.runs import collectives, submission

    kube = Kube(namespace)
    cluster = submission.settings(kube)
    resources = Resources(pool=pool, nodes=nodes, processes=processes)
    if not quiet:
        typer.echo(f"all-reduce over {nodes} nodes of the pool {pool}, {processes} processes on each")
    return collectives.measure(kube, cluster, resources, lambda line: None if quiet else typer.echo(line))
