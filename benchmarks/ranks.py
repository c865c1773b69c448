"""Ranks of a benchmark: new processes that run one function, and the result of each."""

import os
import socket
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any


def results_by_rank(count: int, function: Callable[..., Any], *arguments: Any) -> dict[int, Any]:
    """The results of a function on each rank, by rank; a process group can be made there without settings.

    Raises:
        SystemExit: a rank failed; it has said how.
    """
    context = get_context("spawn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    answers = context.Queue()
    ranks = [
        context.Process(target=_rank, args=(rank, environment, answers, function, arguments)) for rank in range(count)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        raise SystemExit("a rank failed")
    return dict(answers.get() for _ in ranks)


def _rank(
    rank: int, environment: dict[str, object], answers: Any, function: Callable[..., Any], arguments: Any
) -> None:
    os.environ |= {key: str(value) for key, value in {**environment, "RANK": rank, "LOCAL_RANK": rank}.items()}
    answers.put((rank, function(*arguments)))
