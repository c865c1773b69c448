"""A pool of ranks: importing torch takes seconds, so processes that have done it serve many tests.

All are forked off one that has imported what they need. This is a module of its own because such a process finds its
function by the module's name, and conftest is many.
"""

import faulthandler
import gc
import os
import queue
import secrets
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HANGS = 240  # seconds after which a rank says where it stands, and is no longer waited for soon after
LEAVES = 30  # seconds in which the others notice that one is dead
LAST_WORDS = 6000  # characters of a rank's last output to stderr before it died or hung
JOBS = 100  # of a process: torch's own caches and threads grow with each


class Ranks:
    """Processes that have torch imported and run one function after another as the ranks of a job."""

    def __init__(self, count: int) -> None:
        self._start(count)

    def _start(self, count: int) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(["tests.ranks.preloaded"])
        self._tasks = [context.Queue() for _ in range(count)]
        self._results = context.Queue()
        self._folder = TemporaryDirectory()
        self._processes = [
            context.Process(target=_serve, args=(rank, tasks, self._results, self._stderr(rank)), daemon=True)
            for rank, tasks in enumerate(self._tasks)
        ]
        for process in self._processes:
            process.start()
        self._jobs = 0

    def run(self, world_size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """The function's results by rank; an AssertionError with the first traceback if it raised, or with the
        ranks that died or hang.
        """
        if self._jobs == JOBS:
            self._restart()
        self._jobs += 1
        port = _free_port()
        for tasks in self._tasks[:world_size]:
            tasks.put((world_size, port, function, args))
        answers = self._answers(world_size)
        silent = [rank for rank in range(world_size) if rank not in answers]
        if silent:
            codes = {rank: self._processes[rank].exitcode for rank in silent}
            last_errors = [
                f"rank {rank}: {self._stderr(rank).read_text(errors='replace')[-LAST_WORDS:]}" for rank in silent
            ]
            self._restart()  # or the next job would find the answers of this one
            summary = f"no answer from {codes} (by rank, its exit code) of {world_size}: {answers}"
            raise AssertionError("\n".join([summary, *last_errors]))
        errors = [value for failed, value in answers.values() if failed]
        assert not errors, errors[0]
        return [answers[rank][1] for rank in range(world_size)]

    def _answers(self, world_size: int) -> dict[int, Any]:
        """Of the ranks that give one."""
        answers: dict[int, Any] = {}
        until = time.monotonic() + HANGS + LEAVES
        while len(answers) < world_size and time.monotonic() < until:
            try:
                rank, answer = self._results.get(timeout=1)
                answers[rank] = answer
            except queue.Empty:
                if not all(process.is_alive() for process in self._processes[:world_size]):
                    until = min(until, time.monotonic() + LEAVES)
        return answers

    def _stderr(self, rank: int) -> Path:
        return Path(self._folder.name) / str(rank)

    def _restart(self) -> None:
        self.close()
        self._start(len(self._processes))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()


def _free_port() -> int:
    """Below those that the system gives to whoever asks for any: it is to be free until the first rank listens."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _serve(rank: int, tasks: Any, results: Any, stderr: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    faulthandler.enable(file=2)
    while True:
        world_size, port, function, args = tasks.get()
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "MASTER_PORT": port}
        os.environ.update({key: str(value) for key, value in variables.items()} | {"MASTER_ADDR": "127.0.0.1"})
        faulthandler.dump_traceback_later(HANGS, file=2)
        try:
            results.put((rank, (False, function(*args))))
        except BaseException:
            results.put((rank, (True, traceback.format_exc())))
            _leave_group()
        faulthandler.cancel_dump_traceback_later()
        # A job's remains in caches and cycles hold its process groups and their threads, each of which wakes 100
        # times a second: after hundreds of jobs a rank had 800 of them, and switching took half of both cores' time.
        _forget_meshes()
        gc.collect()
        gc.freeze()  # modules, above all: to look through them takes 0.2 s, after each job of each rank


def _forget_meshes() -> None:
    """Clear DTensor's caches: their entries hold the meshes they were made for, and these their process groups."""
    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor import _collective_utils, _redistribute, debug

    debug._clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
    _redistribute._gen_transform_infos.cache_clear()
    _redistribute.clear_redistribute_planner_cache()
    _collective_utils.MeshTopoInfo.build_from_mesh.cache_clear()


def _leave_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
