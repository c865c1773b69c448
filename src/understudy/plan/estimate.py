"""From what ranks hold, compute and send to memory, seconds and money on a kind of hardware."""

from collections.abc import Sequence
from dataclasses import dataclass

from understudy.plan.hardware import TERA, Hardware
from understudy.plan.trace import Traced
from understudy.recipe import Degrees, Train

EFFICIENCY = 0.45
"""Of the data sheet's speed that training is assumed to reach in products of matrices; not measured here."""
FRAGMENTED = 0.05
"""Of the peak, that the allocator is assumed not to be able to use."""
CONTEXT = 1.0
"""GiB that CUDA and NCCL are assumed to take beside the tensors."""
OVERLAPPED = ("_allgather_base_", "_reduce_scatter_base_")
"""What fully_shard sends while it computes."""
SUMMED = ("allreduce_", "all_reduce")
"""What goes around twice: once for the sum, and once for all to have it."""
GIB, GIGA = 2**30, 1e9


@dataclass(frozen=True)
class Estimate:
    """A training on hardware; of its ranks, the one that has most."""

    degrees: Degrees
    traced: Traced
    memory: float
    """GiB, with what cannot be used and what is beside the tensors."""
    fits: bool
    compute: float
    """Seconds a step; so are the next three."""
    communication: float
    """That nothing is computed in."""
    bubble: float
    """In which stages wait for one another."""
    step: float

    def hours(self, steps: int) -> float:
        """Of so many steps."""
        return self.step * steps / 3600


def beside_tensors(hardware: Hardware) -> float:
    """GiB of a process's memory on its hardware that no spreading makes smaller."""
    return CONTEXT if hardware.is_gpu else 0.0


def estimate(
    train: Train, found: Degrees, traced: Sequence[Traced], hardware: Hardware, per_node: int, precision: str
) -> Estimate:
    """What a training takes.

    Args:
        train: the recipe's settings.
        found: its degrees.
        traced: a rank of each stage.
        hardware: what they run on.
        per_node: processes on each node.
        precision: of products of matrices: bf16, fp16 or fp32.
    """
    most = max(traced, key=lambda rank: rank.peak.bytes)
    memory = most.peak.bytes / GIB
    if hardware.is_gpu:
        memory *= 1 + FRAGMENTED
    memory += beside_tensors(hardware)
    speed = hardware.tflops.get(precision, hardware.tflops["fp32"]) * TERA * EFFICIENCY
    compute = max(rank.flops for rank in traced) / speed
    hidden, exposed = _seconds(most, hardware, per_node)
    if found.dp_replicate > 1 and not found.shards and not train.diloco:  # whose replicas meet once in many steps
        hidden += _all_reduce(most, found, hardware, per_node)
    exposed += max(0.0, hidden - compute)
    count = train.gradient_accumulation_steps
    waits = (found.pp - 1) / (count * train.pipeline.stages_per_rank)
    bubble = compute * waits
    return Estimate(
        found, most, memory, memory <= hardware.memory, compute, exposed, bubble, compute + exposed + bubble
    )


def _seconds(traced: Traced, hardware: Hardware, per_node: int) -> tuple[float, float]:
    """Sent while something is computed, and while nothing is."""
    hidden = exposed = 0.0
    for (operation, ranks), size in traced.traffic.items():
        if len(ranks) < 2:
            continue
        seconds = size * (len(ranks) - 1) / len(ranks) / (GIGA * _speed(ranks, hardware, per_node))
        if operation in OVERLAPPED:
            hidden += seconds
        else:
            exposed += seconds * (2 if operation in SUMMED else 1)
    return hidden, exposed


def _speed(ranks: Sequence[int], hardware: Hardware, per_node: int) -> float:
    return hardware.link if len({rank // per_node for rank in ranks}) == 1 else hardware.network


def _all_reduce(traced: Traced, found: Degrees, hardware: Hardware, per_node: int) -> float:
    """Of all gradients, in buckets, as DistributedDataParallel does."""
    size = traced.peak.kinds.get("parameters", 0)
    ranks = range(0, found.world_size, found.world_size // found.dp_replicate)
    return 2 * size * (len(ranks) - 1) / len(ranks) / (GIGA * _speed(ranks, hardware, per_node))
