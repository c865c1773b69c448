"""The client for a tracking server: chosen here and nowhere else.

Over REST wherever that is spoken: importing MLflow takes seconds, and its client alone takes more memory than all the
rest of a launcher, which watches for hours beside its job. Of MLflow's own client otherwise, and for files always.
"""

import os

from understudy.registry.local import LocalDatabase
from understudy.registry.over_mlflow import OverMlflow
from understudy.registry.over_rest import OverRest
from understudy.registry.pod_token import POD
from understudy.registry.server import database
from understudy.registry.tracking import TrackingServer

# Ways of signing in to a cloud's server that only MLflow's client knows.
CLOUDS = ("MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_AWS_SIGV4")


def server_at(uri: str) -> TrackingServer:
    """The server at an address; it is not asked anything yet."""
    is_web = uri.startswith(("http://", "https://"))
    if is_web and not any(os.environ.get(name) not in (None, "", POD) for name in CLOUDS):
        return OverRest(uri)
    return _asked_by_mlflow(uri)


def mlflow_at(uri: str) -> OverMlflow:
    """The server at an address, with MLflow's own client, for whoever sends files there or fetches some.

    Raises:
        UnderstudyError: it does not answer.
    """
    server_at(uri).check()
    return _asked_by_mlflow(uri)


def _asked_by_mlflow(uri: str) -> OverMlflow:
    return LocalDatabase(uri) if database(uri) else OverMlflow(uri)
