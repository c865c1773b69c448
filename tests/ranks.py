"""A pool of ranks: importing torch takes seconds, so processes that have done it serve many tests.

It is a module of its own because a spawned process finds its function by the module's name, and conftest is many.
"""

import gc
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any


class Ranks:
    """Processes that have torch imported and run one function after another as the ranks of a job."""

    def __init__(self, count: int) -> None:
        context = get_context("spawn")
        self._tasks = [context.Queue() for _ in range(count)]
        self._results = context.Queue()
        self._processes = [
            context.Process(target=_serve, args=(rank, tasks, self._results), daemon=True)
            for rank, tasks in enumerate(self._tasks)
        ]
        for process in self._processes:
            process.start()

    def run(self, world_size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """What the function returned, by rank; an AssertionError with the first traceback if it raised."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for tasks in self._tasks[:world_size]:
            tasks.put((world_size, port, function, args))
        answers = dict(self._results.get(timeout=300) for _ in range(world_size))
        errors = [value for failed, value in answers.values() if failed]
        assert not errors, errors[0]
        return [answers[rank][1] for rank in range(world_size)]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _serve(rank: int, tasks: Any, results: Any) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    while True:
        world_size, port, function, args = tasks.get()
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "MASTER_PORT": port}
        os.environ.update({key: str(value) for key, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"})
        try:
            results.put((rank, (False, function(*args))))
        except BaseException:
            results.put((rank, (True, traceback.format_exc())))
            _leave_group()
        # What a job leaves in cycles holds its process groups and their threads: after hundreds of jobs a rank had 800.
        gc.collect()
        gc.freeze()  # modules, above all: to look through them takes 0.2 s, after each job of each rank


def _leave_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
