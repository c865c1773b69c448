"""The cost of a checkpoint to the steps after it, and the effect of offloading and whole-step compilation on a step."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.clock import clocked, our_training
from benchmarks.gpu.sizes import Sizes
from benchmarks.gpu.steps import job, net
from tests.ranks.plan.measured import LABELS

HEAD = "| training | ms of a step | MiB | of a checkpoint: ms lost | ms, synchronous |\n" + "|---" * 5 + "|"


def stall(sizes: Sizes, folder: Path) -> str:
    """Milliseconds that the steps took longer for each checkpoint that was begun among them, and the time of a save."""
    planned = job(sizes, folder, sizes.medium, objectives=LABELS, train={"steps": 46, "checkpoint_every": 20})
    seconds = clocked(planned)[0].seconds
    usual = statistics.median(seconds)
    lost = sum(seconds) - usual * len(seconds)  # two checkpoints, after steps 20 and 40
    at_once = synchronous(sizes, folder)
    return f"| checkpoints | {usual * 1e3:.1f} | | {lost / 2 * 1e3:.0f} | {at_once * 1e3:.0f} |"


def synchronous(sizes: Sizes, folder: Path) -> float:
    """Seconds of torch.save() for weights, and two moments as large."""
    state = net(sizes.medium, sizes).state_dict()
    three = [state, *({name: value.clone() for name, value in state.items()} for _ in range(2))]
    begun = time.perf_counter()
    torch.save(three, folder / "saved.pt")
    return time.perf_counter() - begun


def trained(**train: Any) -> Callable[[Sizes, Path], str]:
    """A training of the medium model, or of the small one where it is compiled."""

    def measured(sizes: Sizes, folder: Path) -> str:
        model = sizes.small if "compile" in train else sizes.medium
        measured = our_training(job(sizes, folder, model, objectives=LABELS, train=train))
        return f"| {train} | {measured['seconds'] * 1e3:.1f} | {measured['bytes'] / 2**20:,.0f} | | |"

    return measured


ROWS: dict[str, Callable[[Sizes, Path], str]] = {
    "checkpoints": stall,
    "in memory": trained(offload=[]),
    "offloaded activations": trained(offload=["activations"]),
    "offloaded parameters": trained(offload=["parameters"], strategy="fsdp"),
    "offloaded parameters, single": trained(offload=["parameters"]),
    "small": trained(compile=False),
    "small, compiled": trained(compile=True),
}
