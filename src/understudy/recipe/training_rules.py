"""The rules within a training, and between it and its processes."""

from collections.abc import Iterator

from understudy.recipe.key_path import Conflict, KeyPath
from understudy.recipe.precision_rules import eight_bits, fp8, fp16
from understudy.recipe.schema import Resources, Train
from understudy.recipe.strategy import Degrees, Pipeline, degrees

NOTHING_TO_VALIDATE = "the data has no validation split; give it a share, data.validation"
"""The error of validate_every, once the data is ingested."""


def job_conflicts(path: KeyPath, train: Train, job: str, resources: Resources) -> Iterator[Conflict]:
    """The contradictions in a training, or with its processes: each path, and the fix."""
    yield from _elastic(job, train, resources)
    if train.steps and train.schedule.warmup >= train.steps:
        yield (*path, "schedule", "warmup"), f"{train.schedule.warmup} of {train.steps} steps; leave some to train in"
    yield from _guard(path, train)
    yield from _resharded(path, train)
    yield from fp16(path, train)
    yield from _compression(path, train, resources)
    yield from _diloco(path, train, resources)
    if train.strategy == "auto":  # the plan leaves out degrees that conflict with the rest
        if train.offload:
            yield (*path, "strategy"), "auto takes the plan's degrees, and the plan does not know offload; name degrees"
        return
    try:
        chosen = degrees(train.strategy, resources.nodes, resources.processes, f"resources.{job}")
    except ValueError as error:
        yield (*path, "strategy"), str(error)
        return
    if train.tensor_plan and chosen.tp == 1:
        yield (*path, "tensor_plan"), "splits layers over processes, and tp is 1; remove it, or use strategy: tp"
    if why := _uneven(train, chosen):
        yield (*path, "batch_size"), why
    yield from _pipeline(path, train, chosen)
    yield from degree_conflicts(path, train, chosen)


def degree_conflicts(path: KeyPath, train: Train, chosen: Degrees) -> Iterator[Conflict]:
    """Settings of a training that conflict with its degrees."""
    splits = chosen.pp * chosen.cp * chosen.tp > 1
    yield from _savers(path, train, chosen)
    yield from fp8(path, train, chosen)
    yield from eight_bits(path, train, chosen)
    if train.lora and chosen.tp > 1:
        why = "layers are not split beside adapters (tp); use fsdp, cp or pp"
        yield (*path, "lora"), why
    if train.compression and not chosen.is_replicated:
        why = "is for whole models on several processes; remove it, or use strategy: ddp"
        yield (*path, "compression"), why
    if train.diloco and (chosen.dp_replicate == 1 or splits):
        why = "is for several replicas, whose layers and sequences are not split; remove it, or use ddp or hsdp"
        yield (*path, "diloco"), why


def _guard(path: KeyPath, train: Train) -> Iterator[Conflict]:
    """Settings that conflict with skipped steps."""
    if train.guard and train.diloco:
        why = "skips steps of all replicas at once, and those of diloco train apart; remove one of them"
        yield (*path, "guard"), why
    if train.guard and train.compression and train.compression.type == "powersgd":
        why = "powersgd's error feedback would keep a gradient that is no number; use bf16, or remove one of them"
        yield (*path, "guard"), why


def _resharded(path: KeyPath, train: Train) -> Iterator[Conflict]:
    """Settings whose state other processes cannot take over from a checkpoint."""
    key_path = (*path, "resume_resharded")
    if train.resume_resharded and train.diloco:
        why = "each replica of diloco has its own optimiser state, which others cannot take over; remove it"
        yield key_path, why
    if train.resume_resharded and train.compression and train.compression.type == "powersgd":
        yield key_path, "each process has error feedback of powersgd, which others cannot take over; remove it"


def _pipeline(path: KeyPath, train: Train, chosen: Degrees) -> Iterator[Conflict]:
    if chosen.pp == 1:
        if train.pipeline != Pipeline():
            yield (*path, "pipeline"), "is for a model in stages, and pp is 1; remove it, or use strategy: pp"
        return
    stages, count = chosen.pp * train.pipeline.stages_per_rank, train.gradient_accumulation_steps
    least = {"GPipe": 1, "DualPipeV": stages}.get(train.pipeline.schedule, chosen.pp)
    if count < least:
        yield (
            (*path, "gradient_accumulation_steps"),
            f"is the number of micro-batches, and {train.pipeline.schedule} over {chosen.pp} processes needs {least} "
            f"or more; the more, the less they wait",
        )


def _savers(path: KeyPath, train: Train, chosen: Degrees) -> Iterator[Conflict]:
    """Settings that save memory or time, but not with these degrees."""
    if train.strategy == "dp":
        yield from _on_copies(path, train)
    if "parameters" in train.offload and ((not chosen.shards and chosen.world_size > 1) or chosen.pp > 1):
        why = "parameters wait elsewhere where they are in shards, and not in stages; use fsdp or hsdp, or take it out"
        yield (*path, "offload"), why
    if "activations" in train.offload and chosen.tp > 1:
        why = "activations of layers that are split do not wait elsewhere; use activation_checkpointing, or take it out"
        yield (*path, "offload"), why
    if train.compile is True and chosen.pp * chosen.cp * chosen.tp > 1:
        why = "layers, sequences and stages that are split are not compiled (with some schedules the result is wrong)"
        yield (*path, "compile"), f"{why}; use single, ddp, fsdp or hsdp, or set it to false"


def _on_copies(path: KeyPath, train: Train) -> Iterator[Conflict]:
    """Settings that are bound to the original blocks, while DataParallel computes with copies."""
    settings = {
        "activation_checkpointing": train.activation_checkpointing != "none",
        "offload": bool(train.offload),
        "compile": train.compile is True,
    }
    for name, is_set in settings.items():
        if is_set:
            yield (*path, name), "is not for the copies that strategy: dp makes in each step; use ddp, or take it out"


def _compression(path: KeyPath, train: Train, resources: Resources) -> Iterator[Conflict]:
    if train.compression is None:
        return
    if train.compression.type == "powersgd" and (resources.min_nodes or resources.nodes) < resources.nodes:
        why = "each process has error feedback of powersgd, which another number of processes cannot take over"
        yield (*path, "compression"), f"{why}; use bf16, or leave min_nodes out"


def _diloco(path: KeyPath, train: Train, resources: Resources) -> Iterator[Conflict]:
    """Settings that conflict with replicas that train apart."""
    if train.diloco is None:
        return
    every = train.diloco.every
    if train.validate_every and train.validate_every % every:
        yield (
            (*path, "validate_every"),
            f"replicas are one model after every {every} steps; make it a multiple of that",
        )
    if train.average:
        yield (*path, "average"), "is of one model, and replicas train apart; leave it out, or diloco"
    if train.compression:
        yield (*path, "compression"), "replicas that train apart send no gradients; leave it out, or diloco"
    if (resources.min_nodes or resources.nodes) < resources.nodes:
        why = "each replica has its own optimiser state, which another number of replicas cannot take over"
        yield (*path, "diloco"), f"{why}; leave min_nodes out, or diloco"


def _uneven(train: Train, chosen: Degrees) -> str | None:
    """The reason why a batch does not divide evenly; None if it does."""
    parts = chosen.readers * train.gradient_accumulation_steps
    if train.batch_size % parts == 0:
        return None
    below = train.batch_size // parts * parts
    nearest = f"{below} or {below + parts}" if below else str(parts)
    return (
        f"{train.batch_size} examples cannot be shared out evenly over {parts} parts ({chosen.readers} readers x "
        f"{train.gradient_accumulation_steps} gradient accumulation steps); the nearest that can: {nearest}"
    )


def _elastic(job: str, train: Train, resources: Resources) -> Iterator[Conflict]:
    """Settings that conflict with a number of nodes from min_nodes to nodes."""
    least, most = resources.min_nodes or resources.nodes, resources.nodes
    path: KeyPath = ("resources", *job.split("."), "min_nodes")
    if least > most:
        yield path, f"{least} is more than nodes, which is {most}; make it {most} or less"
    if least < most and (isinstance(train.strategy, Degrees) or train.strategy == "auto"):
        yield path, "degrees are for one number of nodes; write strategy as ddp, fsdp or hsdp, or leave min_nodes out"
        return
    for nodes in range(least, most):
        try:
            chosen = degrees(train.strategy, nodes, resources.processes, f"resources.{job}")
        except ValueError as error:
            yield path, f"with {nodes} nodes: {error}"
            return
        if why := _uneven(train, chosen):
            yield path, f"with {nodes} nodes: {why}; every number from min_nodes to nodes has to divide it"
            return
