"""The rules within a training, and between it and its processes."""

from collections.abc import Iterator

from understudy.recipe.places import Conflict, Place
from understudy.recipe.precision_rules import eight_bits, fp8, fp16
from understudy.recipe.schema import Resources, Train
from understudy.recipe.strategy import Degrees, Pipeline, degrees

NOTHING_TO_VALIDATE = "the data has no validation split; give it a share, data.validation"
"""The error of validate_every, once the data is ingested."""


def job_conflicts(place: Place, train: Train, job: str, resources: Resources) -> Iterator[Conflict]:
    """The contradictions in a training, or with its processes: each path, and the fix."""
    yield from _elastic(job, train, resources)
    if train.steps and train.schedule.warmup >= train.steps:
        yield (*place, "schedule", "warmup"), f"{train.schedule.warmup} of {train.steps} steps; leave some to train in"
    yield from _guard(place, train)
    yield from _resharded(place, train)
    yield from fp16(place, train)
    yield from _compression(place, train, resources)
    yield from _diloco(place, train, resources)
    if train.strategy == "auto":  # the plan leaves out degrees that conflict with the rest
        if train.offload:
            yield (*place, "strategy"), "auto is what the plan says, which does not know offload; name degrees"
        return
    try:
        found = degrees(train.strategy, resources.nodes, resources.processes, f"resources.{job}")
    except ValueError as error:
        yield (*place, "strategy"), str(error)
        return
    if train.tensor_plan and found.tp == 1:
        yield (*place, "tensor_plan"), "splits layers over processes, and tp is 1; remove it, or use strategy: tp"
    if why := _uneven(train, found):
        yield (*place, "batch_size"), why
    yield from _pipeline(place, train, found)
    yield from degree_conflicts(place, train, found)


def degree_conflicts(place: Place, train: Train, found: Degrees) -> Iterator[Conflict]:
    """Settings of a training that conflict with its degrees."""
    splits = found.pp * found.cp * found.tp > 1
    yield from _savers(place, train, found)
    yield from fp8(place, train, found)
    yield from eight_bits(place, train, found)
    if train.lora and found.tp > 1:
        why = "layers are not split beside adapters (tp); use fsdp, cp or pp"
        yield (*place, "lora"), why
    if train.compression and not found.is_replicated:
        why = "is for whole models on several processes; remove it, or use strategy: ddp"
        yield (*place, "compression"), why
    if train.diloco and (found.dp_replicate == 1 or splits):
        why = "is for several replicas, whose layers and sequences are not split; remove it, or use ddp or hsdp"
        yield (*place, "diloco"), why


def _guard(place: Place, train: Train) -> Iterator[Conflict]:
    """Settings that conflict with skipped steps."""
    if train.guard and train.diloco:
        why = "skips steps of all replicas at once, and those of diloco train apart; remove one of them"
        yield (*place, "guard"), why
    if train.guard and train.compression and train.compression.type == "powersgd":
        why = "what powersgd has not sent yet would keep a gradient that is no number; use bf16, or remove one of them"
        yield (*place, "guard"), why


def _resharded(place: Place, train: Train) -> Iterator[Conflict]:
    """Settings whose state other processes cannot take over from a checkpoint."""
    where = (*place, "resume_resharded")
    if train.resume_resharded and train.diloco:
        why = "each replica of diloco has an optimiser's state of its own, which others cannot take; remove it"
        yield where, why
    if train.resume_resharded and train.compression and train.compression.type == "powersgd":
        yield where, "each process keeps what powersgd has not sent yet, which others cannot take; remove it"


def _pipeline(place: Place, train: Train, found: Degrees) -> Iterator[Conflict]:
    if found.pp == 1:
        if train.pipeline != Pipeline():
            yield (*place, "pipeline"), "is for a model in stages, and pp is 1; remove it, or use strategy: pp"
        return
    stages, count = found.pp * train.pipeline.stages_per_rank, train.gradient_accumulation_steps
    least = {"GPipe": 1, "DualPipeV": stages}.get(train.pipeline.schedule, found.pp)
    if count < least:
        yield (
            (*place, "gradient_accumulation_steps"),
            f"is the number of micro-batches, and {train.pipeline.schedule} over {found.pp} processes needs {least} or "
            f"more; the more, the less they wait",
        )


def _savers(place: Place, train: Train, found: Degrees) -> Iterator[Conflict]:
    """Settings that save memory or time, but not with these degrees."""
    if train.strategy == "dp":
        yield from _on_copies(place, train)
    if "parameters" in train.offload and ((not found.shards and found.world_size > 1) or found.pp > 1):
        why = "parameters wait elsewhere where they are in shards, and not in stages; use fsdp or hsdp, or take it out"
        yield (*place, "offload"), why
    if "activations" in train.offload and found.tp > 1:
        why = "activations of layers that are split do not wait elsewhere; use activation_checkpointing, or take it out"
        yield (*place, "offload"), why
    if train.compile is True and found.pp * found.cp * found.tp > 1:
        why = "layers, sequences and stages that are split are not compiled (with some schedules the result is wrong)"
        yield (*place, "compile"), f"{why}; use single, ddp, fsdp or hsdp, or set it to false"


def _on_copies(place: Place, train: Train) -> Iterator[Conflict]:
    """Settings that are bound to the original blocks, while DataParallel computes with copies."""
    settings = {
        "activation_checkpointing": train.activation_checkpointing != "none",
        "offload": bool(train.offload),
        "compile": train.compile is True,
    }
    for name, is_set in settings.items():
        if is_set:
            yield (*place, name), "is not for the copies that strategy: dp makes in each step; use ddp, or take it out"


def _compression(place: Place, train: Train, resources: Resources) -> Iterator[Conflict]:
    if train.compression is None:
        return
    if train.compression.type == "powersgd" and (resources.min_nodes or resources.nodes) < resources.nodes:
        why = "each process keeps what powersgd has not sent yet, which another number of them cannot take over"
        yield (*place, "compression"), f"{why}; use bf16, or leave min_nodes out"


def _diloco(place: Place, train: Train, resources: Resources) -> Iterator[Conflict]:
    """Settings that conflict with replicas that train apart."""
    if train.diloco is None:
        return
    every = train.diloco.every
    if train.validate_every and train.validate_every % every:
        yield (
            (*place, "validate_every"),
            f"replicas are one model after every {every} steps; make it a multiple of that",
        )
    if train.average:
        yield (*place, "average"), "is of one model, and replicas train apart; leave it out, or diloco"
    if train.compression:
        yield (*place, "compression"), "replicas that train apart send no gradients; leave it out, or diloco"
    if (resources.min_nodes or resources.nodes) < resources.nodes:
        why = "each replica has an optimiser's state of its own, which another number of them cannot take over"
        yield (*place, "diloco"), f"{why}; leave min_nodes out, or diloco"


def _uneven(train: Train, found: Degrees) -> str | None:
    """The reason why a batch does not divide evenly; None if it does."""
    parts = found.readers * train.gradient_accumulation_steps
    if train.batch_size % parts == 0:
        return None
    below = train.batch_size // parts * parts
    nearest = f"{below} or {below + parts}" if below else str(parts)
    return (
        f"{train.batch_size} examples cannot be shared out evenly over {parts} parts ({found.readers} readers x "
        f"{train.gradient_accumulation_steps} gradient accumulation steps); the nearest that can: {nearest}"
    )


def _elastic(job: str, train: Train, resources: Resources) -> Iterator[Conflict]:
    """Settings that conflict with a number of nodes from min_nodes to nodes."""
    least, most = resources.min_nodes or resources.nodes, resources.nodes
    where: Place = ("resources", *job.split("."), "min_nodes")
    if least > most:
        yield where, f"{least} is more than nodes, which is {most}; make it {most} or less"
    if least < most and (isinstance(train.strategy, Degrees) or train.strategy == "auto"):
        yield where, "degrees are for one number of nodes; write strategy as ddp, fsdp or hsdp, or leave min_nodes out"
        return
    for nodes in range(least, most):
        try:
            found = degrees(train.strategy, nodes, resources.processes, f"resources.{job}")
        except ValueError as error:
            yield where, f"with {nodes} nodes: {error}"
            return
        if why := _uneven(train, found):
            yield where, f"with {nodes} nodes: {why}; every number from min_nodes to nodes has to divide it"
            return
