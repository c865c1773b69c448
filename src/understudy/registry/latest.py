"""The MLflow page of the latest pipeline run that is unfinished or has metrics."""

from understudy.registry.client import server_at
from understudy.registry.names import PARENT, STEP
from understudy.registry.server import run_page

LOOKED_AT = 20  # runs


def latest_page(uri: str) -> str | None:
    """The address of the page of the latest run that is unfinished or has metrics; None if the server has no runs.

    A run that reused all results is finished without metrics: an earlier run has the numbers. If all of the latest
    runs are like that, the page is that of the latest.

    Raises:
        UnderstudyError: the server does not respond.
    """
    server = server_at(uri)
    experiments, query = server.experiments(), f"tags.`{STEP}` = '{PARENT}'"
    runs = server.runs(experiments, query)
    if not runs:
        return None
    unfinished = set(server.runs(experiments, f"{query} and attributes.status != 'FINISHED'"))
    shown = (run_id for run_id in runs[:LOOKED_AT] if run_id in unfinished or server.has_metrics(run_id))
    chosen = next(shown, runs[0])
    return run_page(uri, server.experiment_of(chosen), chosen)
