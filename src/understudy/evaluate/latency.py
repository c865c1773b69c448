"""Latency of all models, timed in turn in one process.

Every round times each model once and the next round starts with the next model, so that a throttled clock, a busy
neighbour or a warm cache affects all alike. The latency is the median of the rounds; the gate uses the median of the
rounds' ratios, which a slowdown half-way does not change.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from understudy.evaluate.contents import Latency
from understudy.evaluate.metrics import FloatArray

WARM_UP = 3


def rounds(
    modules: Mapping[str, nn.Module], inputs: Mapping[str, Tensor], repeats: int, tick: Callable[[], None]
) -> dict[str, FloatArray]:
    """Time all models on the same examples; inputs are (batch, ...), already on the model's device.

    Returns:
        Each model's milliseconds (repeats,) by its role.
    """
    roles = list(modules)
    seconds: dict[str, list[float]] = {role: [] for role in roles}
    for turn in range(-WARM_UP, repeats):
        first = turn % len(roles)
        for role in roles[first:] + roles[:first]:
            elapsed = _seconds(modules[role], inputs[role])
            if turn >= 0:
                seconds[role].append(elapsed)
        tick()
    return {role: np.array(elapsed) * 1000 for role, elapsed in seconds.items()}


def _seconds(module: nn.Module, inputs: Tensor) -> float:
    start = time.perf_counter()
    module(inputs)
    if inputs.is_cuda:
        torch.cuda.synchronize(inputs.device)
    return time.perf_counter() - start


def latency(milliseconds: FloatArray, teacher: FloatArray, batch_size: int) -> Latency:
    """A model's latency.

    Args:
        milliseconds: of each round, (n,).
        teacher: those of the teacher that the student is compared with, in the same rounds.
        batch_size: examples of each round.
    """
    median = float(np.median(milliseconds))
    return {
        "batch_size": batch_size,
        "median_ms": median,
        "min_ms": float(milliseconds.min()),
        "p95_ms": float(np.quantile(milliseconds, 0.95)),
        "throughput_per_s": batch_size / median * 1000,
        "ratio_to_teacher": float(np.median(milliseconds / teacher)),
    }
