"""A rank's part of a benchmark job: the only process loads one model after the other, and scores it."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch

from understudy.agent.evaluation import device_of
from understudy.agent.surroundings import Surroundings
from understudy.errors import InputError, Stopped, disk_errors
from understudy.jobs.payload import Benchmark
from understudy.jobs.specification import JobSpec

REPORTED = 0.5  # seconds between reports
MISSING = (
    "evaluate.lm_eval: lm-eval is not installed where the models are measured: pip install 'understudy[lm-eval]', in a "
    "cluster into the trainer's image"
)


def benchmark(spec: JobSpec, payload: Benchmark, surroundings: Surroundings) -> None:
    """Score the models into the attempt's output.

    Raises:
        InputError: lm-eval is not installed, or a task does not fit its documents.
        UnderstudyError: a model does not match the recipe.
        Stopped: the rank was requested to end.
    """
    surroundings.heartbeat("loading", -1)
    try:
        from understudy.evaluate.benchmark import benchmark as score
    except ModuleNotFoundError as error:
        if error.name not in ("lm_eval", "datasets"):
            raise
        raise InputError(MISSING) from error
    torch.set_num_threads(spec.threads)
    output = surroundings.join_attempt(surroundings.begin_attempt(1)) / "output"
    with disk_errors(output):
        shutil.rmtree(output, ignore_errors=True)  # left by an attempt that was ended
        output.mkdir()
        score(
            {role: Path(model) for role, model in payload.models.items()},
            payload.digests,
            Path(payload.examples),
            payload.recipe,
            Path(payload.tasks),
            output,
            device_of(spec),
            _progress(surroundings, len(payload.models)),
        )
        shutil.rmtree(output / "cache", ignore_errors=True)
    surroundings.heartbeat("done", 0)


def _progress(surroundings: Surroundings, models: int) -> Callable[[int], None]:
    """A callback for each batch: it reports progress, and raises Stopped if the rank has to end."""
    reported = 0.0

    def tell(done: int) -> None:
        nonlocal reported
        if surroundings.must_stop():
            raise Stopped("measuring was stopped")
        if time.monotonic() - reported >= REPORTED:
            reported = time.monotonic()
            surroundings.heartbeat("measuring", done)
            surroundings.report({"step": done, "steps": models, "unit": "models"})

    return tell
