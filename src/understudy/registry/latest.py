"""The page of the latest pipeline run on a server."""

from understudy.registry.client import server_at
from understudy.registry.names import PARENT, STEP
from understudy.registry.server import run_page


def latest_page(uri: str) -> str | None:
    """The address of the latest run's page; None when nothing was recorded there.

    Raises:
        UnderstudyError: the server does not answer.
    """
    server = server_at(uri)
    found = server.runs(server.experiments(), f"tags.`{STEP}` = '{PARENT}'")
    return run_page(uri, server.experiment_of(found[0]), found[0]) if found else None
