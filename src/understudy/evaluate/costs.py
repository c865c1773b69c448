"""The cost of inference of each model, and the machine on which it is measured."""

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from understudy.data.measured import TestSplit
from understudy.evaluate.answers import full_precision
from understudy.evaluate.contents import Hardware
from understudy.evaluate.latency import WARM_UP, rounds
from understudy.evaluate.metrics import FloatArray
from understudy.evaluate.shares import WHOLE, Share
from understudy.models.size import flops_per_example, parameter_count
from understudy.recipe import Recipe


@dataclass(frozen=True)
class Costs:
    """The cost of a model's inference."""

    parameters: int
    flops: int
    """FLOP of one example."""
    rounds: FloatArray
    """Milliseconds of inference in each round, (n,)."""


def inference_costs(
    modules: Mapping[str, nn.Module],
    splits: Mapping[str, TestSplit],
    recipe: Recipe,
    device: torch.device,
    tick: Callable[[], None],
    share: Share,
) -> dict[str, Costs]:
    """Measure the inference costs of all models.

    Args:
        modules: the models by role.
        splits: the test split as each model reads it.
        recipe: the settings.
        device: the models' device.
        tick: called after each round.
        share: this rank's share of the batches.

    Returns:
        The costs by role; none on a rank that waits while the first one times the models.
    """
    settings = recipe.evaluate.latency

    def tick_together() -> None:
        if share.spread is None:  # waiting ranks have heartbeats, too
            share.meet()
        tick()

    if share.rank and share.spread is None:
        for _ in range(WARM_UP + settings.repeats):
            tick_together()
        return {}
    inputs = {role: torch.from_numpy(splits[role].sample(settings.batch_size)).to(device) for role in modules}
    flops = {role: flops_per_example(module, inputs[role]) for role, module in modules.items()}
    with torch.inference_mode(), full_precision():
        times = rounds(modules, inputs, settings.repeats, tick_together)
    return {role: Costs(parameter_count(modules[role]), flops[role], times[role]) for role in modules}


def hardware(device: torch.device, kind: str, share: Share = WHOLE) -> Hardware:
    """The machine and settings of the measurement."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": share.spread.degrees.dp_shard if share.spread else 1,
        "torch": torch.__version__,
        "precision": kind,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
