"""Selection of the client for a tracking server, only in this module: REST where it can be used (see tracking.py)."""

import os

from understudy.registry.local import LocalDatabase
from understudy.registry.over_mlflow import OverMlflow
from understudy.registry.over_rest import OverRest
from understudy.registry.pod_token import POD
from understudy.registry.server import database
from understudy.registry.tracking import TrackingServer

# Authentication methods of clouds that only MLflow's client supports.
CLOUDS = ("MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_AWS_SIGV4")


def server_at(uri: str) -> TrackingServer:
    """The server at an address; no request is sent yet."""
    is_web = uri.startswith(("http://", "https://"))
    if is_web and not any(os.environ.get(name) not in (None, "", POD) for name in CLOUDS):
        return OverRest(uri)
    return _over_mlflow(uri)


def mlflow_at(uri: str) -> OverMlflow:
    """The server at an address over MLflow's own client, which file transfers need.

    Raises:
        UnderstudyError: the server does not respond.
    """
    server_at(uri).check()
    return _over_mlflow(uri)


def _over_mlflow(uri: str) -> OverMlflow:
    return LocalDatabase(uri) if database(uri) else OverMlflow(uri)
