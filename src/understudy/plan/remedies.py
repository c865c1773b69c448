"""Remedies for degrees that do not fit: the missing memory, and the smallest change of the recipe that helps."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from understudy.errors import InputError
from understudy.plan.choices import refusal
from understudy.plan.estimate import Estimate, process_overhead
from understudy.plan.planned import Planned
from understudy.plan.ranking import Placement, estimated
from understudy.recipe import Degrees, Train

PARTS = (2, 4, 8)
"""Factors by which the number of micro-batches is tried."""


@dataclass(frozen=True)
class Remedy:
    """A change of the recipe, and the estimate with it."""

    change: str
    estimate: Estimate


def remedy(planned: Planned, miss: Estimate, placement: Placement) -> Remedy | None:
    """The first change of the recipe that makes a training fit; None if none is enough."""
    for change, train, degrees in _changes(planned.train, miss.degrees):
        changed = replace(planned, settings=replace(planned.settings, train=train))
        if refusal(changed, degrees, placement.processes):
            continue
        try:
            estimate = estimated(changed, degrees, placement)
        except InputError:
            continue
        if estimate.fits:
            return Remedy(change, estimate)
    return None


def _changes(train: Train, current: Degrees) -> Iterator[tuple[str, Train, Degrees]]:
    """Changes, the cheapest first: activation checkpointing, then shards for copies, then smaller micro-batches."""
    spreads = [("", current), *_in_shards(current)]
    for times in (1, *PARTS):
        count = times * train.gradient_accumulation_steps
        if train.batch_size % (count * current.readers):
            continue
        for spread, degrees in spreads:
            for recomputes in (False, True):
                changes = [f"gradient_accumulation_steps: {count}"] * (times > 1)
                changes += [spread] * bool(spread)
                changes += ["activation_checkpointing: full"] * recomputes
                if changes and not (recomputes and train.activation_checkpointing == "full"):
                    changed: dict[str, object] = {"gradient_accumulation_steps": count}
                    changed |= {"activation_checkpointing": "full"} if recomputes else {}
                    yield " and ".join(changes), train.model_copy(update=changed), degrees


def _in_shards(degrees: Degrees) -> Iterator[tuple[str, Degrees]]:
    """The degrees without whole copies of weights, gradients and the optimiser's state."""
    if degrees.dp_replicate > 1 or degrees.zero_stage < 3:
        changes = {"dp_replicate": 1, "dp_shard": degrees.dp_replicate * degrees.dp_shard, "zero_stage": 3}
        shards = degrees.model_copy(update=changes)
        is_fsdp = shards.world_size == shards.dp_shard
        yield ("strategy: fsdp" if is_fsdp else f"dp_shard: {shards.dp_shard} for dp_replicate"), shards


def lacking(planned: Planned, miss: Estimate, placement: Placement) -> str:
    """The memory that degrees lack, and the remedy, in words."""
    available = placement.hardware.memory
    message = f"{miss.degrees} takes {miss.memory:.2f} GiB of {available:.1f}, {miss.memory - available:.2f} too many"
    if (fixed := process_overhead(placement.hardware)) >= available:
        return f"{message}; CUDA and NCCL alone are assumed to take {fixed:.2f} a process: take GPUs with more memory"
    largest = max(miss.traced.peak.kinds, key=lambda kind: miss.traced.peak.kinds[kind])
    message += f", mostly for {largest}"
    if fix := remedy(planned, miss, placement):
        return f"{message}; it fits with {fix.change} ({fix.estimate.memory:.2f} GiB)"
    enough = "neither smaller micro-batches, nor shards, nor activation checkpointing is enough"
    return f"{message}; {enough}: take more processes"
