"""Limits on a worker's concurrent requests and its database connections: two connections per request.

MLflow's `log_batch` uses one connection while it waits for a second. With fewer than two per thread, threads wait for
each other until they are refused, 30 s later; with more threads, PostgreSQL refuses connections. Further requests
wait for a free thread.
"""

import argparse
import os
from collections.abc import Sequence

import anyio.to_thread
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from understudy.errors import InputError

SETTING = "UNDERSTUDY_MLFLOW_THREADS"
OVERFLOW = "MLFLOW_SQLALCHEMYSTORE_MAX_OVERFLOW"
POOL_SIZE = 5
"""Connections that SQLAlchemy keeps open in each of three pools: for runs, for models, for accounts."""
SQLITE_THREADS = 40
"""Starlette's default. One thread writes at a time, and the waiting ones have their connections."""
DEFAULT_THREADS = 16
"""With two connections each and 15 in the pools, a server has 47, so two stay below PostgreSQL's usual 97."""
MIN_THREADS = 4
"""The minimum. With these, four workers have 92 connections."""


def threads(database: str, workers: int = 1) -> int:
    """The number of requests that each worker handles concurrently.

    Raises:
        InputError: the setting is no number, or below LEAST.
    """
    value = os.environ.get(SETTING)
    if value is None:
        return SQLITE_THREADS if database.startswith("sqlite") else max(MIN_THREADS, DEFAULT_THREADS // workers)
    if not value.isdecimal() or int(value) < MIN_THREADS:
        raise InputError(f"{SETTING}: {value!r} is not a number of threads; write {MIN_THREADS} or more")
    return int(value)


def workers(arguments: Sequence[str]) -> int:
    """The number of workers in the arguments of `mlflow server`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--workers", "-w", type=int, default=int(os.environ.get("MLFLOW_WORKERS") or 4))
    return max(1, int(parser.parse_known_args(list(arguments))[0].workers))


def size_pools(database: str) -> None:
    """Size the connection pools for this worker's threads, before MLflow creates them."""
    os.environ.setdefault(OVERFLOW, str(2 * threads(database) - POOL_SIZE))


class Threads:
    """ASGI middleware that sets the worker's number of threads at startup."""

    def __init__(self, app: ASGIApp, number: int) -> None:
        self.app = app
        self.number = number

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Set the event loop's thread limit, and pass everything on."""
        if scope["type"] == "lifespan":
            anyio.to_thread.current_default_thread_limiter().total_tokens = self.number
        await self.app(scope, receive, send)


def with_threads(app: FastAPI, number: int) -> FastAPI:
    """The app, limited to this number of concurrent requests."""
    app.add_middleware(Threads, number=number)
    return app
