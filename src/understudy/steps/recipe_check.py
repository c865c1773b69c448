"""Errors in a recipe that its schema cannot detect, reported before anything is read or trained.

Nothing here imports torch or transformers, since a run with all steps cached is checked too. Checks that need them
run when the first training begins (train/job.py), checks that need the data after ingest (prepare.py).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from understudy.data.raw import Reading, Split
from understudy.data.sources import registry
from understudy.data.tokenizer import PLACE, files
from understudy.errors import InputError
from understudy.evaluate.sufficiency import shortfalls
from understudy.launch.local.device import device_here
from understudy.models import architectures, user_code
from understudy.models.facts import data_settings, predicts_tokens
from understudy.models.hub import Unreachable, hub_file
from understudy.models.labels import check_count
from understudy.models.pretrained import COMMIT
from understudy.models.pretrained_files import check_folder
from understudy.plan.expected import facts_of
from understudy.plan.hardware import table
from understudy.recipe import ArchitectureModel, FactoryModel, Model, PretrainedModel, Recipe
from understudy.recipe.key_path import Conflict
from understudy.recipe.tasks import load
from understudy.steps import layers


class Unknown(NamedTuple):
    """A fact that could not be checked here."""

    what: str


class Note(NamedTuple):
    """A fact that a user may not expect, and that is no error."""

    what: str


Found = Iterator[Conflict | Unknown | Note]


@dataclass(frozen=True)
class Here:
    """The parts of a recipe's environment that can be checked from here."""

    data: bool = True
    """The data's path."""
    models: bool = True
    """Folders of models, and modules of factories."""
    search_path: Sequence[str] = ()
    """The first folders to search for factories."""
    waits_for_hub: bool = True
    """Whether an unreachable hub is an error, because the files will be needed; otherwise they are unknown."""


@dataclass(frozen=True)
class Findings:
    """The errors, the facts that could not be checked, and the notes."""

    problems: tuple[Conflict, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]


def findings(recipe: Recipe, here: Here) -> Findings:
    """Check everything that a recipe refers to."""
    found = [*_data(recipe, here), *_data_sets(recipe, here), *_tokenizer(recipe, here)]
    for where, model in recipe.models.items():
        found += _model(recipe, model, where, here)
    found += layers.problems(recipe)
    found += _hardware(recipe, here)
    problems = tuple(finding for finding in found if not isinstance(finding, Unknown | Note))
    unknown = tuple(finding.what for finding in found if isinstance(finding, Unknown))
    return Findings(problems, unknown, tuple(finding.what for finding in found if isinstance(finding, Note)))


def _hardware(recipe: Recipe, here: Here) -> Found:
    """Note GPUs that this machine lacks, if the run is to be on it, and hardware that is not in the built-in table.

    It may be in the table of `understudy plan --table`, so it counts as unknown.
    """
    by_job = recipe.resources.written
    jobs = [job for job, resources in by_job.items() if resources.device == "cuda"]
    if jobs and here.models and device_here() == "cpu":
        named = ", ".join(f"resources.{job}.device" for job in jobs)
        yield Note(f"{named}: cuda, and this machine has no GPU; run it on one that has, or in a cluster")
    for job, resources in by_job.items():
        if (kind := resources.hardware) and kind not in (known := table()):
            hint = architectures.suggestion(kind.upper(), known)
            yield Unknown(f"resources.{job}.hardware: {kind} is none of {', '.join(known)}, or of plan --table{hint}")


def _data(recipe: Recipe, here: Here) -> Found:
    """Check the path of the data, and that its test split is large enough for the gate.

    Without a test split in the source, the number of all records is the bound.
    """
    source = recipe.data.source
    path = getattr(source, "path", None)
    if path is None or not here.data:
        yield Unknown(
            f"how many test records {source.type} has; whether they are enough for the gate is known after ingest"
        )
        return
    try:
        reading = registry.read(source, load(recipe.task).FIELDS)
    except InputError as error:
        yield _located(error)
        return
    yield from map(Note, (*reading.notes, *_unused_shares(recipe, reading)))
    tested = reading.split_sizes.get("test")
    if tested is None and not recipe.data.test and not getattr(source, "split", None):
        yield ("data", "test"), "is 0, and the data has no test split of its own; set a share aside, such as 0.2"
        return
    examples = reading.total if tested is None else tested
    few = list(shortfalls(load(recipe.task), recipe.gate_metric, recipe.gate, examples))
    yield from few
    if not few and tested is None:
        total = reading.total
        yield Unknown(f"how many of {total:,} records are test records; whether they are enough is known after ingest")


def _data_sets(recipe: Recipe, here: Here) -> Found:
    """Check the paths of further data."""
    fields = load(recipe.task).FIELDS
    for name, data_set in recipe.data_sets.items():
        if getattr(data_set.source, "path", None) is None or not here.data:
            continue
        try:
            reading = registry.read(data_set.source, fields)
        except InputError as error:
            place, why = _located(error)
            yield ("data_sets", name, *place[1:]), why
        else:
            yield from map(Note, reading.notes)


def _unused_shares(recipe: Recipe, reading: Reading) -> Iterator[str]:
    """Notes on the recipe's shares for splits that the source has already."""
    shares: dict[Split, float] = {"test": recipe.data.test, "validation": recipe.data.validation}
    for split, share in shares.items():
        if split in recipe.data.model_fields_set and (size := reading.split_sizes.get(split)):
            records = f"{size:,} record{'s' * (size > 1)}"
            yield f"data.{split}: {share:g} is not used, since the source has its own {split} split, of {records}"


def _tokenizer(recipe: Recipe, here: Here) -> Found:
    settings = recipe.text.tokenizer if recipe.takes("data.text") else None
    if settings is None or settings.pretrained is None:
        return
    if Path(settings.pretrained).is_absolute() and not here.data:
        yield Unknown(f"{PLACE}: {settings.pretrained} has to be where the run will be")
        return
    try:
        found = files(settings)
    except Unreachable as error:
        yield _located(error) if here.waits_for_hub else Unknown(str(error))
    except InputError as error:
        yield _located(error)
    else:
        if "tokenizer.json" not in [path.name for path in found]:
            yield tuple(PLACE.split(".")), f"{settings.pretrained} has no tokenizer.json"


def _model(recipe: Recipe, model: Model, where: str, here: Here) -> Found:
    match model:
        case ArchitectureModel():
            yield from _architecture(recipe, model, where)
        case FactoryModel() if here.models:
            if why := user_code.problem(model.factory, here.search_path):
                yield (*where.split("."), "factory"), why
        case PretrainedModel():
            yield from _pretrained(recipe, model, where, here)
        case FactoryModel():
            yield Unknown(f"{where}.factory: {model.factory} has to be where the run will be")


def _architecture(recipe: Recipe, model: ArchitectureModel, where: str) -> Found:
    """Check a model type and the names in its configuration; the values are tried before the first training."""
    place = (*where.split("."), "type")
    fitting = architectures.types_for(recipe.task)
    if not fitting:
        yield Unknown(f"{where}.type: transformers is not installed here and knows whether it has {model.type}")
        return
    if model.type not in fitting:
        if model.type in architectures.model_types():
            yield place, f"{model.type} is no architecture for the task {recipe.task}"
        else:
            yield (
                place,
                f"{model.type} is no architecture of transformers{architectures.suggestion(model.type, fitting)}",
            )
        return
    if recipe.takes("data.text") and architectures.is_composite(model.type):
        yield place, architectures.composite_message(model.type, recipe.task)
        return
    shape = _shape(recipe)
    settings = architectures.settings(model.type)
    for key, value in model.config.items():
        at = (*where.split("."), "config", key)
        if key in shape:
            if shape[key] not in (None, value):
                yield at, f"is {value}, the data has {shape[key]}; leave it out"
        elif settings is not None and key not in settings:
            yield at, f"{model.type} has no such setting{architectures.suggestion(key, settings)}"
    for key, problem in architectures.duplicate_settings(architectures.aliases(model.type), {**shape, **model.config}):
        yield (*where.split("."), "config", key), problem


def _shape(recipe: Recipe) -> dict[str, int | None]:
    """The configuration values that come from the data, under transformers' names; None before the data is read."""
    shape = data_settings(facts_of(recipe, 0))
    return {name: None if name in ("num_labels", "vocab_size") else size for name, size in shape.items()}


def _pretrained(recipe: Recipe, model: PretrainedModel, where: str, here: Here) -> Found:
    """Check a model's folder or its id on the hub, and that its configuration fits the recipe."""
    place, folder = f"{where}.pretrained", Path(model.pretrained)
    if folder.is_absolute() and not here.models:
        yield Unknown(f"{place}: {model.pretrained} has to be where the run will be")
        return
    pinned = model.revision is not None and COMMIT.fullmatch(model.revision)
    if pinned and here.waits_for_hub and not folder.is_dir():
        return  # it may not be needed, because of the step cache
    try:
        if folder.is_dir():
            check_folder(folder, model, where)
            config: Path | None = folder / "config.json"
        else:
            config = hub_file(model.pretrained, "config.json", model.revision, place)
    except Unreachable as error:
        yield _located(error) if here.waits_for_hub else Unknown(str(error))
    except InputError as error:
        yield _located(error)
    else:
        yield from _config(recipe, model, config, where)


def _config(recipe: Recipe, model: PretrainedModel, path: Path | None, where: str) -> Found:
    """Check that a pretrained model's config.json fits the recipe."""
    place = (*where.split("."), "pretrained")
    if path is None:
        yield place, f"{model.pretrained} has no config.json; is it a transformers model?"
        return
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        yield place, f"{path} is not JSON ({error}); fetch it again"
        return
    if not isinstance(config, dict):
        yield place, f"{path} is not a JSON object; fetch it again"
        return
    yield from _model_type(recipe, model, config, place)
    if predicts_tokens(facts_of(recipe, 0)) and (head := architectures.other_head(config, recipe.task)):
        yield place, f"{model.pretrained} is a {head}, and no language model; take one whose head was trained"
    yield from _names(model, config, place)
    for key, wanted in _shape(recipe).items():
        name = {"image_size": "size", "num_channels": "channels"}.get(key)
        if name and isinstance(config.get(key), int) and config[key] != wanted:
            why = f"is {wanted}, but the {place[0]} {model.pretrained} sees {config[key]}; make it {config[key]}"
            yield ("data", "image", name), why


def _model_type(recipe: Recipe, model: PretrainedModel, config: dict[str, Any], place: tuple[str, ...]) -> Found:
    """Check that it is an architecture for the task; custom code may have any model type."""
    kind, fitting = config.get("model_type"), architectures.types_for(recipe.task)
    if config.get("auto_map"):
        return
    if not isinstance(kind, str):
        yield place, f"the config.json of {model.pretrained} has no model_type in words; is it a transformers model?"
    elif fitting and kind not in fitting:
        yield place, f"{model.pretrained} is a {kind}, which is no architecture for the task {recipe.task}"


def _names(model: PretrainedModel, config: dict[str, Any], place: tuple[str, ...]) -> Found:
    """Check that the recipe names as many labels as the model has outputs."""
    outputs = config.get("id2label")
    if not isinstance(outputs, dict):
        return
    try:
        check_count(model.labels, len(outputs), ".".join(place[:-1]))
    except InputError as error:
        yield _located(error)


def _located(error: InputError) -> Conflict:
    """Split an error message into its path in the recipe and the text."""
    place, _, words = str(error).partition(": ")
    return tuple(place.split(".")), words
