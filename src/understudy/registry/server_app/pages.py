"""The app of `understudy ui`: MLflow's pages without accounts, behind the front.

It serves loopback only, but every account of the machine is there, and MLflow's assistant would run commands for each
of them as the user who started it.
"""

from fastapi import FastAPI
from mlflow.server.fastapi_app import create_fastapi_app

from understudy.registry.server_app.front import behind_front


def create_app() -> FastAPI:
    """The app, for `mlflow server --app-name understudy-pages`."""
    return behind_front(create_fastapi_app())
