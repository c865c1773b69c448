"""A job specification as a measuring: one rank measures the models, and begins anew when it was ended."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch

from understudy.agent.surroundings import Surroundings
from understudy.errors import InputError, Stopped, disk_errors
from understudy.evaluate.contents import RESULTS
from understudy.evaluate.measure import measure
from understudy.jobs.payload import Evaluation
from understudy.jobs.specification import JobSpec

REPORTED = 0.5  # seconds between reports


def evaluate(spec: JobSpec, payload: Evaluation, surroundings: Surroundings) -> None:
    """Measure the models into the attempt's output.

    Raises:
        InputError: the test split is empty, or a GPU is asked for where there is none.
        UnderstudyError: a model is not what the recipe says.
        Stopped: somebody wanted the rank to end.
    """
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise InputError(f"{spec.section}.device: cuda is asked for, but torch sees no GPU here; set it to cpu")
    torch.set_num_threads(spec.threads)
    folder = surroundings.join_attempt(surroundings.begin_attempt(spec.world_size))
    surroundings.heartbeat("loading", -1)
    output = folder / "output"
    shutil.rmtree(output, ignore_errors=True)  # of an attempt that was ended
    with disk_errors(output):
        output.mkdir()
        measure(
            {role: Path(model) for role, model in payload.models.items()},
            payload.digests,
            Path(payload.examples),
            payload.recipe,
            output,
            spec.device,
            _progress(surroundings),
            Path(payload.records) if payload.records else None,
            {role: Path(folder, RESULTS) for role, folder in payload.known.items()},
        )
    surroundings.heartbeat("done", 0)


def _progress(surroundings: Surroundings) -> Callable[[float, float, str], None]:
    """Called after each batch."""
    reported = 0.0

    def tell(done: float, total: float, unit: str) -> None:
        nonlocal reported
        if surroundings.must_stop():
            raise Stopped("measuring was stopped")
        if time.monotonic() - reported >= REPORTED:
            reported = time.monotonic()
            surroundings.heartbeat("measuring", int(done))
            surroundings.report({"step": done, "steps": total, "unit": unit})

    return tell
