"""The rules between a recipe's sections; the rules inside one section are in its model."""

from collections.abc import Iterator

from understudy.recipe import learners, logit_rules
from understudy.recipe.evaluation import GENERATED, Evaluate
from understudy.recipe.key_path import Conflict, KeyPath
from understudy.recipe.learners import Training, to_key_path, trainings
from understudy.recipe.models import Normalization, PretrainedModel
from understudy.recipe.precision_rules import quantised_teachers
from understudy.recipe.schema import Learner, Recipe, Resources, Train
from understudy.recipe.sources import serving
from understudy.recipe.strategy import Degrees, degrees
from understudy.recipe.tasks import MetricName, load
from understudy.recipe.teacher_weight_rules import teacher_weight_conflicts
from understudy.recipe.training_rules import job_conflicts

LEAST_MARGIN = 1e-6
"""The gate's smallest margin above 0: a smaller loss would take millions of test examples to rule out."""
UNDECIDABLE: dict[MetricName, str] = {
    "calibration_error": "no interval of the calibration error is reliable, because its estimate is biased; use "
    "nll, which grows with bad calibration too; evaluate.metrics may hold calibration_error",
    "agreement": "every teacher agrees with itself, so no student could reach it; use f1 or another metric of answers",
}


def conflicts(recipe: Recipe) -> Iterator[Conflict]:
    """The contradictions in a recipe: each path, and the fix."""
    yield from _of_other_tasks(recipe)
    yield from _data(recipe)
    yield from _models(recipe)
    yield from _packing(recipe)
    yield from _sequences(recipe)
    yield from _metrics(recipe)
    yield from _stride(recipe)
    learner_conflicts = list(learners.conflicts(recipe))
    yield from learner_conflicts or teacher_weight_conflicts(recipe)
    for training in trainings(recipe):
        key_path, train = (*training.key_path, "train"), training.train
        yield from job_conflicts(key_path, train, training.job, training.resources)
        yield from _augment((*key_path, "augment"), train, recipe)
        yield from _lora((*key_path, "lora"), train, training.learner)
        if not learner_conflicts:
            yield from _beside_teachers(recipe, training)
    if not learner_conflicts:
        yield from logit_rules.conflicts(recipe)
    yield from _measuring(recipe.evaluate, recipe.resources.evaluation)
    if recipe.candidate == "control" and not recipe.student.control:
        yield ("register", "control"), "no control is trained; set student.control to true, or leave this out"


def _beside_teachers(recipe: Recipe, training: Training) -> Iterator[Conflict]:
    """Conflicts of a training with its teachers and objectives."""
    if training.teachers:
        yield from quantised_teachers(training)
        yield from _teacher_shards(training)
    yield from _objectives(recipe, training)


def _of_other_tasks(recipe: Recipe) -> Iterator[Conflict]:
    """Settings that do not apply to the recipe's task."""
    for setting, path in specific(recipe):
        if not recipe.takes(setting):
            yield path, f"does not apply to the task {recipe.task}; remove it"


def specific(recipe: Recipe) -> Iterator[tuple[str, KeyPath]]:
    """The settings in a recipe that only some tasks have: the name in the tasks' SETTINGS, and the path."""
    named = [("data", name) for name in ("image", "text", "chat") if getattr(recipe.data, name)]
    named += [("evaluate", name) for name in ("stride", "generation", "lm_eval") if getattr(recipe.evaluate, name)]
    yield from ((".".join(path), path) for path in named)
    if recipe.takes("data.text") and recipe.text.packing != "wrapped":
        yield "data.text.packing", ("data", "text", "packing")
    for path, model in recipe.models.items():
        for name in ("normalization", "labels"):
            if isinstance(model, PretrainedModel) and getattr(model, name) is not None:
                yield f"model.{name}", (*path.split("."), name)
    for path, stage in recipe.trainings.items():
        if stage.train.augment:
            yield "train.augment", (*to_key_path(path), "train", "augment")


def _teacher_shards(training: Training) -> Iterator[Conflict]:
    """Processes that do not divide into copies of a teacher; auto leaves such degrees out."""
    resources, strategy = training.resources, training.train.strategy
    for nodes in range(resources.min_nodes or resources.nodes, resources.nodes + 1) if strategy != "auto" else ():
        try:
            chosen = degrees(strategy, nodes, resources.processes)
        except ValueError:  # reported where the strategy is checked
            continue
        try:
            chosen.of_teacher(training.learner.teacher_shards)
        except ValueError as error:
            yield (*training.section, "teacher_shards"), str(error)


def _objectives(recipe: Recipe, training: Training) -> Iterator[Conflict]:
    """Objectives that do not work with a training's degrees, or with its examples."""
    resources, strategy, chosen = training.resources, training.train.strategy, None
    if strategy != "auto":  # the plan leaves out degrees that conflict with the rest
        try:
            chosen = degrees(strategy, resources.nodes, resources.processes)
        except ValueError:  # reported where the strategy is checked
            return
    size, parts = training.train.batch_size, training.train.gradient_accumulation_steps
    for at, objective in enumerate(recipe.objectives_of(training.path)):
        for why in objective.requirements.conflicts(
            chosen, packed=recipe.packed, mixed=training.train.mixed, batch_size=size, parts=parts
        ):
            yield (*training.key_path, "distill", at), why


def _data(recipe: Recipe) -> Iterator[Conflict]:
    data, task = recipe.data, recipe.task
    fitting = serving(task)
    if data.source.type not in fitting:
        why = f"{data.source.type} holds no records for the task {task}; use {', '.join(fitting)}"
        yield ("data", "source", "type"), why
    if data.validation + data.test >= 1:
        total = round(data.validation + data.test, 6)
        yield ("data", "validation"), f"validation and test together take {total:g} of the data; leave some to train on"
    if data.text and data.text.tokenizer.revision and not data.text.tokenizer.pretrained:
        yield (
            ("data", "text", "tokenizer", "revision"),
            "applies to a pretrained tokenizer only; remove it",
        )


def _packing(recipe: Recipe) -> Iterator[Conflict]:
    """Settings that cannot keep documents apart."""
    if not recipe.packed:
        return
    for path, stage in recipe.trainings.items():
        strategy = stage.train.strategy
        if isinstance(strategy, Degrees) and strategy.cp > 1 and strategy.cp_comm_type == "ring":
            why = "a ring sees all earlier positions, but packed documents are kept apart; use alltoall"
            yield (*to_key_path(path), "train", "strategy", "cp_comm_type"), why


def _sequences(recipe: Recipe) -> Iterator[Conflict]:
    """Strategies that split sequences, for a task whose examples have a label instead of a target at each token."""
    if load(recipe.task).TARGETS == "tokens":
        return
    for path, stage in recipe.trainings.items():
        strategy = stage.train.strategy
        if strategy == "cp" or (isinstance(strategy, Degrees) and strategy.cp > 1):
            why = f"cp splits sequences that a language model learns token by token, and the task is {recipe.task}"
            yield (*to_key_path(path), "train", "strategy"), f"{why}; use another strategy, such as ddp or fsdp"


def _models(recipe: Recipe) -> Iterator[Conflict]:
    for section, learner in recipe.learners.items():
        model, path = learner.model, (*to_key_path(section), "model")
        if not isinstance(model, PretrainedModel):
            continue
        if model.labels is not None and learner.trainings and recipe.takes("model.labels"):
            yield (*path, "labels"), "the model is trained further, with outputs for the data's labels; remove it"
        if model.normalization is not None and recipe.takes("model.normalization"):
            yield from _normalization((*path, "normalization"), model.normalization, recipe.image.channels)


def _normalization(path: KeyPath, normalization: Normalization, channels: int) -> Iterator[Conflict]:
    for name, values in (("mean", normalization.mean), ("std", normalization.std)):
        if len(values) != channels:
            yield (*path, name), f"has {len(values)} numbers, and data.image.channels is {channels}; give one for each"
    if max(normalization.mean, default=0) > 1:
        why = f"has {max(normalization.mean):g}, and is of pixels from 0 to 1; divide both mean and std by 255"
        yield (*path, "mean"), why


def _metrics(recipe: Recipe) -> Iterator[Conflict]:
    task_metrics = load(recipe.task).METRICS
    comparable = tuple(metric for metric in task_metrics if metric not in UNDECIDABLE)
    if recipe.gate_metric in UNDECIDABLE:
        yield ("gate", "metric"), UNDECIDABLE[recipe.gate_metric]
    elif recipe.gate_metric not in task_metrics:
        fitting = ", ".join(comparable)
        yield ("gate", "metric"), f"{recipe.gate_metric} does not fit the task {recipe.task}; use one of {fitting}"
    metric, minimum = recipe.gate_metric, recipe.gate.minimum or 0
    if minimum > 1 and (metric == "accuracy" or metric in GENERATED):
        yield ("gate", "minimum"), f"{minimum:g} is more than 1 (100 %); of {metric}, 90 % is 0.9"
    if 0 < recipe.gate.margin < LEAST_MARGIN:
        why = f"no test set can rule out a loss as small as {recipe.gate.margin:g}; give {LEAST_MARGIN:f} or more, or 0"
        yield ("gate", "margin"), why
    requested: list[tuple[KeyPath, MetricName]] = [(("gate", "metric"), recipe.gate_metric)]
    requested += [(("evaluate", "metrics", at), metric) for at, metric in enumerate(recipe.evaluate.metrics or ())]
    if recipe.takes("evaluate.generation") and not recipe.generation.examples:
        for path, metric in requested:
            if metric in GENERATED:
                yield path, f"{metric} needs answers; give evaluate.generation.examples more than 0, or remove it"
    for path, metric in requested[1:]:
        if metric not in task_metrics:
            yield path, f"{metric} does not fit the task {recipe.task}; use one of {', '.join(task_metrics)}"


def _stride(recipe: Recipe) -> Iterator[Conflict]:
    path: KeyPath = ("evaluate", "stride")
    stride, length = recipe.evaluate.stride or 0, recipe.text.sequence_length
    if stride > length and recipe.takes("evaluate.stride"):
        why = f"{stride} tokens, and data.text.sequence_length is {length}: tokens between windows are not measured"
        yield path, f"{why}; make it {length} or less"


def _augment(path: KeyPath, train: Train, recipe: Recipe) -> Iterator[Conflict]:
    if train.augment and train.augment.crop >= recipe.image.size and recipe.takes("train.augment"):
        yield (*path, "crop"), f"{train.augment.crop} pixels, and images have {recipe.image.size}; some would be black"


def _lora(path: KeyPath, train: Train, learner: Learner) -> Iterator[Conflict]:
    if train.lora is None or isinstance(learner.model, PretrainedModel):
        return
    if learner.start:
        yield path, "adapts a pretrained model, and one that starts from layers is trained in full; remove it"
    else:
        yield path, "the model is not pretrained, and its frozen weights would be random; remove it"


def _measuring(evaluate: Evaluate, resources: Resources) -> Iterator[Conflict]:
    """Settings that conflict with evaluation by a fixed number of processes, each with other examples."""
    if resources.min_nodes not in (None, resources.nodes):
        why = "an evaluation that loses a node starts again, with all nodes; leave it out"
        yield ("resources", "evaluate", "min_nodes"), why
    path: KeyPath = ("evaluate", "strategy")
    try:
        chosen = degrees(evaluate.strategy, resources.nodes, resources.processes, "resources.evaluate")
    except ValueError as error:
        yield path, str(error)
        return
    if evaluate.lm_eval and chosen.shards:
        yield (
            ("evaluate", "lm_eval"),
            "takes whole models in one process; set evaluate.strategy to ddp, or remove it",
        )
    if chosen.world_size > chosen.readers or chosen.zero_stage < 3:
        yield path, "models are measured whole or in shards; use ddp, fsdp, hsdp, or {dp_replicate, dp_shard}"
