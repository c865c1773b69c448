"""The page of the latest pipeline run on a server that has something to show."""

from understudy.registry.client import server_at
from understudy.registry.names import PARENT, STEP
from understudy.registry.server import run_page

LOOKED_AT = 20  # runs


def latest_page(uri: str) -> str | None:
    """The address of the page of the latest run that has something to show; None when nothing was recorded there.

    A run that reused everything is finished and has no metrics: an earlier one has the numbers. Where the latest runs
    are all like that, it is the latest one's page.

    Raises:
        UnderstudyError: the server does not answer.
    """
    server = server_at(uri)
    experiments, of_pipeline = server.experiments(), f"tags.`{STEP}` = '{PARENT}'"
    found = server.runs(experiments, of_pipeline)
    if not found:
        return None
    others = set(server.runs(experiments, f"{of_pipeline} and attributes.status != 'FINISHED'"))
    shown = (run_id for run_id in found[:LOOKED_AT] if run_id in others or server.has_metrics(run_id))
    chosen = next(shown, found[0])
    return run_page(uri, server.experiment_of(chosen), chosen)
