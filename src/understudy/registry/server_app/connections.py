"""How many requests a worker works on at once, and how many connections to the database these have: two each.

MLflow's `log_batch` holds one and waits for a second. With fewer than two for each thread, threads wait for one
another until they are refused, 30 s later; with more threads, PostgreSQL refuses connections. What comes beyond the
threads waits for one of them.
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
KEPT = 5
"""Connections that SQLAlchemy keeps open, of each of three pools: for runs, for models, for accounts."""
SQLITE = 40
"""As many as starlette has. One writes at a time, and who waits has a connection."""
OTHERS = 16
"""With two connections for each, and what the pools keep, 47: two servers have fewer than PostgreSQL's usual 97."""
LEAST = 4
"""With these, four workers have 92."""


def threads(database: str, workers: int = 1) -> int:
    """How many requests each of some workers works on at once.

    Raises:
        InputError: the setting is no such number.
    """
    said = os.environ.get(SETTING)
    if said is None:
        return SQLITE if database.startswith("sqlite") else max(LEAST, OTHERS // workers)
    if not said.isdecimal() or int(said) < LEAST:
        raise InputError(f"{SETTING}: {said!r} is no number of threads; it takes {LEAST} or more")
    return int(said)


def workers(arguments: Sequence[str]) -> int:
    """How many workers the arguments of `mlflow server` ask for."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--workers", "-w", type=int, default=int(os.environ.get("MLFLOW_WORKERS") or 4))
    return max(1, int(parser.parse_known_args(list(arguments))[0].workers))


def make_room(database: str) -> None:
    """Give each thread of this worker its connections, before MLflow makes its pools."""
    os.environ.setdefault(OVERFLOW, str(2 * threads(database) - KEPT))


class Threads:
    """ASGI middleware that gives the worker its threads when it starts."""

    def __init__(self, app: ASGIApp, number: int) -> None:
        self.app = app
        self.number = number

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Set their number, which is that of the event loop, and pass everything on."""
        if scope["type"] == "lifespan":
            anyio.to_thread.current_default_thread_limiter().total_tokens = self.number
        await self.app(scope, receive, send)


def with_threads(app: FastAPI, number: int) -> FastAPI:
    """The app, working on this many requests at once."""
    app.add_middleware(Threads, number=number)
    return app
