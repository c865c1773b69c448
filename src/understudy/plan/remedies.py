"""Remedies for degrees that do not fit: the missing memory, and the smallest change of the recipe that helps."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from understudy.errors import InputError
from understudy.plan.choices import refusal
from understudy.plan.estimate import Estimate, beside_tensors
from understudy.plan.ranking import Place, estimated
from understudy.plan.trace import Planned
from understudy.recipe import Degrees, Train

PARTS = (2, 4, 8)
"""Factors by which the number of micro-batches is tried."""


@dataclass(frozen=True)
class Remedy:
    """A change of the recipe, and the estimate with it."""

    change: str
    estimate: Estimate


def remedy(planned: Planned, miss: Estimate, place: Place) -> Remedy | None:
    """The first change of the recipe that makes a training fit; None if none is enough."""
    for change, train, found in _changes(planned.train, miss.degrees):
        changed = replace(planned, train=train)
        if refusal(changed, found, place.processes):
            continue
        try:
            estimate = estimated(changed, found, place)
        except InputError:
            continue
        if estimate.fits:
            return Remedy(change, estimate)
    return None


def _changes(train: Train, found: Degrees) -> Iterator[tuple[str, Train, Degrees]]:
    """Changes, the cheapest first: activation checkpointing, then shards for copies, then smaller micro-batches."""
    spreads = [("", found), *_in_shards(found)]
    for times in (1, *PARTS):
        count = times * train.gradient_accumulation_steps
        if train.batch_size % (count * found.readers):
            continue
        for spread, degrees in spreads:
            for again in (False, True):
                words = [f"gradient_accumulation_steps: {count}"] * (times > 1)
                words += [spread] * bool(spread)
                words += ["activation_checkpointing: full"] * again
                if words and not (again and train.activation_checkpointing == "full"):
                    changed: dict[str, object] = {"gradient_accumulation_steps": count}
                    changed |= {"activation_checkpointing": "full"} if again else {}
                    yield " and ".join(words), train.model_copy(update=changed), degrees


def _in_shards(found: Degrees) -> Iterator[tuple[str, Degrees]]:
    """The degrees without whole copies of weights, gradients and the optimiser's state."""
    if found.dp_replicate > 1 or found.zero_stage < 3:
        changes = {"dp_replicate": 1, "dp_shard": found.dp_replicate * found.dp_shard, "zero_stage": 3}
        shards = found.model_copy(update=changes)
        alone = shards.world_size == shards.dp_shard
        yield ("strategy: fsdp" if alone else f"dp_shard: {shards.dp_shard} for dp_replicate"), shards


def lacking(planned: Planned, miss: Estimate, place: Place) -> str:
    """The memory that degrees lack, and the remedy, in words."""
    there = place.hardware.memory
    words = f"{miss.degrees} takes {miss.memory:.2f} GiB of {there:.1f}, {miss.memory - there:.2f} too many"
    if (fixed := beside_tensors(place.hardware)) >= there:
        return f"{words}; CUDA and NCCL alone are assumed to take {fixed:.2f} a process: take GPUs with more memory"
    most = max(miss.traced.peak.kinds, key=lambda kind: miss.traced.peak.kinds[kind])
    words += f", and most of them are {most}"
    if found := remedy(planned, miss, place):
        return f"{words}; it fits with {found.change} ({found.estimate.memory:.2f} GiB)"
    return f"{words}; neither smaller parts, nor shards, nor computing blocks again is enough: take more processes"
