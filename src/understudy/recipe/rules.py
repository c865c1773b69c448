"""The rules between a recipe's sections; the rules inside one section are in its model."""

from collections.abc import Iterator

from understudy.recipe.models import Model, Normalization, PretrainedModel
from understudy.recipe.schema import METRICS, Evaluate, MetricName, Recipe, Resources, Train
from understudy.recipe.sources import serving
from understudy.recipe.strategy import Degrees, Pipeline, degrees

Place = tuple[str | int, ...]
Conflict = tuple[Place, str]
LEAST_MARGIN = 1e-6
"""Of the gate, above 0; so small a loss would take millions of test examples to rule out."""
UNDECIDABLE: dict[MetricName, str] = {
    "calibration_error": "no interval of the calibration error is to be relied on, because its estimate is biased; use "
    "nll, which grows with bad calibration too; evaluate.metrics may hold calibration_error",
}


def conflicts(recipe: Recipe) -> Iterator[Conflict]:
    """Where the recipe contradicts itself: each place, and the fix."""
    yield from _data(recipe)
    yield from _models(recipe)
    yield from _packing(recipe)
    yield from _metrics(recipe)
    yield from _stride(recipe)
    if recipe.teacher.train:
        yield from _job(("teacher", "train"), recipe.teacher.train, "teacher", recipe.resources.teacher)
        yield from _augment(("teacher", "train", "augment"), recipe.teacher.train, recipe)
        yield from _lora(("teacher", "train", "lora"), recipe.teacher.train, recipe.teacher.model)
    yield from _job(("student", "train"), recipe.student.train, "distill", recipe.resources.distill)
    yield from _augment(("student", "train", "augment"), recipe.student.train, recipe)
    yield from _lora(("student", "train", "lora"), recipe.student.train, recipe.student.model)
    yield from _measuring(recipe.evaluate, recipe.resources.by_job["evaluate"])


def _data(recipe: Recipe) -> Iterator[Conflict]:
    data, task = recipe.data, recipe.task
    fitting = serving(task)
    if data.source.type not in fitting:
        why = f"{data.source.type} holds no records for the task {task}; use {', '.join(fitting)}"
        yield ("data", "source", "type"), why
    if data.image and task != "image-classification":
        yield ("data", "image"), f"does not apply to the task {task}; remove it"
    if data.text and task != "causal-lm":
        yield ("data", "text"), f"does not apply to the task {task}; remove it"
    if data.validation + data.test >= 1:
        total = round(data.validation + data.test, 6)
        yield ("data", "validation"), f"validation and test together take {total:g} of the data; leave some to train on"
    if data.text and data.text.tokenizer.revision and not data.text.tokenizer.pretrained:
        yield (
            ("data", "text", "tokenizer", "revision"),
            "applies to a pretrained tokenizer only; remove it",
        )


def _packing(recipe: Recipe) -> Iterator[Conflict]:
    """What does not see where documents begin."""
    if recipe.text.packing == "wrapped":
        return
    for role, train in (("teacher", recipe.teacher.train), ("student", recipe.student.train)):
        strategy = train.strategy if train else None
        if isinstance(strategy, Degrees) and strategy.cp > 1 and strategy.cp_comm_type == "ring":
            why = "a ring sees all earlier positions, and data.text.packing keeps documents apart; use alltoall"
            yield (role, "train", "strategy", "cp_comm_type"), why


def _models(recipe: Recipe) -> Iterator[Conflict]:
    fresh = {"teacher.model": recipe.teacher.train is not None, "student.model": True}
    for where, model in recipe.models.items():
        if not isinstance(model, PretrainedModel):
            continue
        place = tuple(where.split("."))
        if recipe.task != "image-classification":
            if model.normalization is not None:
                yield (*place, "normalization"), f"does not apply to the task {recipe.task}; remove it"
            if model.labels is not None:
                yield (*place, "labels"), f"does not apply to the task {recipe.task}; remove it"
            continue
        if model.labels is not None and fresh[where]:
            yield (*place, "labels"), "the model is trained further, with outputs for the data's labels; remove it"
        if model.normalization is not None:
            yield from _normalization((*place, "normalization"), model.normalization, recipe.image.channels)


def _normalization(place: Place, given: Normalization, channels: int) -> Iterator[Conflict]:
    for name, values in (("mean", given.mean), ("std", given.std)):
        if len(values) != channels:
            yield (*place, name), f"has {len(values)} numbers, and data.image.channels is {channels}; give one for each"
    if max(given.mean, default=0) > 1:
        why = f"has {max(given.mean):g}, and is of pixels from 0 to 1; divide both mean and std by 255"
        yield (*place, "mean"), why


def _metrics(recipe: Recipe) -> Iterator[Conflict]:
    known = METRICS[recipe.task]
    comparable = tuple(metric for metric in known if metric not in UNDECIDABLE)
    if recipe.gate_metric in UNDECIDABLE:
        yield ("gate", "metric"), UNDECIDABLE[recipe.gate_metric]
    elif recipe.gate_metric not in known:
        fitting = ", ".join(comparable)
        yield ("gate", "metric"), f"{recipe.gate_metric} does not fit the task {recipe.task}; use one of {fitting}"
    if recipe.gate_metric == "accuracy" and (recipe.gate.minimum or 0) > 1:
        yield (
            ("gate", "minimum"),
            f"{recipe.gate.minimum:g} is more than 1 (100 %); an accuracy of 90 % is 0.9",
        )
    if 0 < recipe.gate.margin < LEAST_MARGIN:
        why = f"no test set can rule out a loss as small as {recipe.gate.margin:g}; give {LEAST_MARGIN:f} or more, or 0"
        yield ("gate", "margin"), why
    asked = [(("evaluate", "metrics", at), metric) for at, metric in enumerate(recipe.evaluate.metrics or ())]
    for place, metric in asked:
        if metric not in known:
            yield place, f"{metric} does not fit the task {recipe.task}; use one of {', '.join(known)}"


def _stride(recipe: Recipe) -> Iterator[Conflict]:
    place: Place = ("evaluate", "stride")
    stride, length = recipe.evaluate.stride or 0, recipe.text.sequence_length
    if stride and recipe.task != "causal-lm":
        yield place, f"does not apply to the task {recipe.task}; remove it"
    elif stride > length:
        why = f"{stride} tokens, and data.text.sequence_length is {length}: what lies between windows is not measured"
        yield place, f"{why}; make it {length} or less"


def _augment(place: Place, train: Train, recipe: Recipe) -> Iterator[Conflict]:
    if train.augment is None:
        return
    if recipe.task != "image-classification":
        yield place, f"does not apply to the task {recipe.task}; remove it"
    elif train.augment.crop >= recipe.image.size:
        yield (*place, "crop"), f"{train.augment.crop} pixels, and images have {recipe.image.size}; some would be black"


def _lora(place: Place, train: Train, model: Model) -> Iterator[Conflict]:
    if train.lora is None:
        return
    if not isinstance(model, PretrainedModel):
        yield place, "the model is not pretrained, and what stays frozen would be random; remove it"
    strategy = train.strategy
    split = isinstance(strategy, Degrees) and strategy.pp * strategy.cp * strategy.tp > 1
    if split or strategy in ("pp", "cp", "tp", "3d"):
        yield place, "layers, sequences and stages are not split beside adapters; use single, ddp, fsdp or hsdp"


def _job(place: Place, train: Train, job: str, resources: Resources) -> Iterator[Conflict]:
    yield from _elastic(job, train, resources)
    if train.steps and train.schedule.warmup >= train.steps:
        yield (*place, "schedule", "warmup"), f"{train.schedule.warmup} of {train.steps} steps; leave some to train in"
    yield from _guard(place, train)
    yield from _resharded(place, train)
    yield from _fp16(place, train)
    if train.strategy == "auto":  # the plan leaves out degrees that do not go with the rest
        for name in ("compression", "diloco", "lora", "offload", "compile"):
            if getattr(train, name):
                yield (*place, "strategy"), f"auto chooses among all degrees, and {name} is for some; name them"
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
    yield from _savers(place, train, found)
    yield from _compression(place, train, found, resources)
    yield from _diloco(place, train, found, resources)


def _guard(place: Place, train: Train) -> Iterator[Conflict]:
    """What a step that is skipped would leave behind."""
    if train.guard and train.diloco:
        why = "skips steps of all replicas at once, and those of diloco train apart; remove one of them"
        yield (*place, "guard"), why
    if train.guard and train.compression and train.compression.type == "powersgd":
        why = "what powersgd has not sent yet would keep a gradient that is no number; use bf16, or remove one of them"
        yield (*place, "guard"), why


def _resharded(place: Place, train: Train) -> Iterator[Conflict]:
    """What only the processes have that left a checkpoint."""
    where = (*place, "resume_resharded")
    if train.resume_resharded and train.diloco:
        why = "each replica of diloco has an optimiser's state of its own, which others cannot take; remove it"
        yield where, why
    if train.resume_resharded and train.compression and train.compression.type == "powersgd":
        yield where, "each process keeps what powersgd has not sent yet, which others cannot take; remove it"


def _fp16(place: Place, train: Train) -> Iterator[Conflict]:
    """What a step that overflows would leave behind."""
    if train.precision != "fp16":
        return
    if train.diloco:
        why = "skips steps of all replicas at once, and those of diloco train apart; use bf16, or remove diloco"
        yield (*place, "precision"), why
    if train.compression and train.compression.type == "powersgd":
        why = "what powersgd has not sent yet would keep a gradient that overflowed; use bf16, or remove compression"
        yield (*place, "precision"), why


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
    """What saves memory or time under some degrees alone."""
    if "parameters" in train.offload and (not found.shards or found.pp > 1):
        why = "parameters wait elsewhere where they are in shards, and not in stages; use fsdp or hsdp, or take it out"
        yield (*place, "offload"), why
    if "activations" in train.offload and found.tp > 1:
        why = "activations of layers that are split do not wait elsewhere; use activation_checkpointing, or take it out"
        yield (*place, "offload"), why
    if train.compile and found.pp * found.cp * found.tp > 1:
        why = "layers, sequences and stages that are split are not compiled (with some schedules the result is wrong)"
        yield (*place, "compile"), f"{why}; use single, ddp, fsdp or hsdp, or set it to false"


def _compression(place: Place, train: Train, found: Degrees, resources: Resources) -> Iterator[Conflict]:
    if train.compression is None:
        return
    if not found.is_replicated:
        why = "is for whole models on several processes; remove it, or use strategy: ddp"
        yield (*place, "compression"), why
    if train.compression.type == "powersgd" and (resources.min_nodes or resources.nodes) < resources.nodes:
        why = "each process keeps what powersgd has not sent yet, which another number of them cannot take over"
        yield (*place, "compression"), f"{why}; use bf16, or leave min_nodes out"


def _diloco(place: Place, train: Train, found: Degrees, resources: Resources) -> Iterator[Conflict]:
    """What contradicts that replicas train apart."""
    if train.diloco is None:
        return
    every = train.diloco.every
    if found.dp_replicate == 1 or found.pp * found.cp * found.tp > 1:
        why = "is for several replicas, whose layers and sequences are not split; remove it, or use ddp or hsdp"
        yield (*place, "diloco"), why
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
    """Why a batch cannot be shared out evenly."""
    parts = found.readers * train.gradient_accumulation_steps
    if train.batch_size % parts == 0:
        return None
    below = train.batch_size // parts * parts
    nearest = f"{below} or {below + parts}" if below else str(parts)
    return (
        f"{train.batch_size} examples cannot be shared out evenly over {parts} parts ({found.readers} readers x "
        f"{train.gradient_accumulation_steps} gradient accumulation steps); the nearest that can: {nearest}"
    )


def _measuring(evaluate: Evaluate, resources: Resources) -> Iterator[Conflict]:
    """What contradicts how models are measured: by a fixed number of processes, each with other examples."""
    if resources.min_nodes not in (None, resources.nodes):
        why = "a measuring that lost a node begins anew, with all of them; leave it out"
        yield ("resources", "evaluate", "min_nodes"), why
    place: Place = ("evaluate", "strategy")
    try:
        found = degrees(evaluate.strategy, resources.nodes, resources.processes, "resources.evaluate")
    except ValueError as error:
        yield place, str(error)
        return
    if found.world_size > found.readers or found.zero_stage < 3:
        yield place, "models are measured whole or in shards; use ddp, fsdp, hsdp, or {dp_replicate, dp_shard}"


def _elastic(job: str, train: Train, resources: Resources) -> Iterator[Conflict]:
    """What a number of nodes between the least and the most would contradict."""
    least, most = resources.min_nodes or resources.nodes, resources.nodes
    where: Place = ("resources", job, "min_nodes")
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
