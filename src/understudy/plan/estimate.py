"""Estimates of a training's memory and time on a kind of hardware, from traces of its ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from understudy.plan.hardware import TERA, Hardware
from understudy.plan.trace import Traced
from understudy.recipe import Degrees, Train

EFFICIENCY = 0.45
"""Assumed share of the data sheet's speed in matrix products; not measured here."""
FRAGMENTED = 0.05
"""Assumed fragmentation in the allocator, as a share of the peak."""
CONTEXT = 1.0
"""GiB that CUDA and NCCL are assumed to take beside the tensors."""
OVERLAPPED = ("_allgather_base_", "_reduce_scatter_base_")
"""Collectives of fully_shard, which overlap with computation."""
SUMMED = ("allreduce_", "all_reduce")
"""Collectives that send everything twice: for the sum, and to distribute it."""
GIB, GIGA = 2**30, 1e9


@dataclass(frozen=True)
class Estimate:
    """A training on hardware, by its rank with the highest peak of memory."""

    degrees: Degrees
    traced: Traced
    memory: float
    """GiB, including fragmentation and memory beside tensors."""
    fits: bool
    compute: float
    """Seconds per step, as are the next three."""
    communication: float
    """Without overlapping computation."""
    bubble: float
    """In which stages wait for one another."""
    step: float

    def hours(self, steps: int) -> float:
        """The hours of so many steps."""
        return self.step * steps / 3600


def process_overhead(hardware: Hardware) -> float:
    """GiB of a process on its hardware that no degrees reduce."""
    return CONTEXT if hardware.is_gpu else 0.0


def estimate(
    train: Train, degrees: Degrees, traced: Sequence[Traced], hardware: Hardware, per_node: int, precision: str
) -> Estimate:
    """The estimate of a training.

    Args:
        train: the recipe's settings.
        degrees: its degrees.
        traced: a rank of each stage.
        hardware: of each process.
        per_node: processes on each node.
        precision: of matrix products: bf16, fp16 or fp32.
    """
    fullest = max(traced, key=lambda rank: rank.peak.bytes)
    memory = fullest.peak.bytes / GIB
    if hardware.is_gpu:
        memory *= 1 + FRAGMENTED
    memory += process_overhead(hardware)
    speed = hardware.tflops.get(precision, hardware.tflops["fp32"]) * TERA * EFFICIENCY
    compute = max(rank.flops for rank in traced) / speed
    hidden, exposed = _seconds(fullest, hardware, per_node)
    if (
        degrees.dp_replicate > 1 and not degrees.shards and not train.diloco
    ):  # DiLoCo's replicas sync once in many steps
        hidden += _all_reduce(fullest, degrees, hardware, per_node)
    exposed += max(0.0, hidden - compute)
    count = train.gradient_accumulation_steps
    waiting_share = (degrees.pp - 1) / (count * train.pipeline.stages_per_rank)
    bubble = compute * waiting_share
    return Estimate(
        degrees, fullest, memory, memory <= hardware.memory, compute, exposed, bubble, compute + exposed + bubble
    )


def _seconds(traced: Traced, hardware: Hardware, per_node: int) -> tuple[float, float]:
    """Seconds of communication that overlaps with computation, and of the rest."""
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


def _all_reduce(traced: Traced, degrees: Degrees, hardware: Hardware, per_node: int) -> float:
    """Seconds of an all-reduce of all gradients in buckets, as in DistributedDataParallel."""
    size = traced.peak.kinds.get("parameters", 0)
    ranks = range(0, degrees.world_size, degrees.world_size // degrees.dp_replicate)
    return 2 * size * (len(ranks) - 1) / len(ranks) / (GIGA * _speed(ranks, hardware, per_node))
