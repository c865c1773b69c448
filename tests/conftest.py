"""Fixtures that several packages' tests share: a pool of ranks, and small examples to train on."""

import json
import os
import socket
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest


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


def _leave_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    pool = Ranks(4)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def image_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """45 images of 8 x 8 pixels in 3 classes."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 45)
    images = random.integers(0, 100, (45, 1, 8, 8)) + 50 * labels[:, None, None, None]
    np.save(folder / "train.images.npy", images.astype(np.uint8))
    np.save(folder / "train.labels.npy", labels)
    facts = {"task": "image-classification", "labels": ["a", "b", "c"], "image": {"size": 8, "channels": 1}}
    (folder / "examples.json").write_text(json.dumps({**facts, "counts": {"train": 45}, "mean": [0.4], "std": [0.2]}))
    return folder


@pytest.fixture(scope="session")
def text_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of 701 tokens out of 50: 44 windows of 16, the last of them shorter."""
    folder = tmp_path_factory.mktemp("text")
    tokens = np.cumsum(np.random.default_rng(0).integers(0, 3, 701)) % 50
    np.save(folder / "train.tokens.npy", tokens.astype(np.uint16))
    facts = {"task": "causal-lm", "vocab_size": 50, "eos_id": 0, "sequence_length": 16}
    (folder / "examples.json").write_text(json.dumps({**facts, "tokens": {"train": 701}}))
    return folder
