"""Errors in a recipe that its schema cannot detect, reported before anything is read or trained.

Nothing here imports torch or transformers, since a run with all steps cached is checked too. Checks that need them
run when the first training begins (train/job.py), checks that need the data after ingest (prepare.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from understudy.data.raw import Broken, Reading, Split
from understudy.data.sources import registry
from understudy.data.tokenizer import PLACE, files
from understudy.errors import InputError
from understudy.evaluate.sufficiency import shortfalls
from understudy.launch.local.device import device_here
from understudy.models import architectures, user_code
from understudy.models.hub import Unreachable, hub_file
from understudy.models.pretrained import COMMIT
from understudy.models.pretrained_files import check_folder
from understudy.plan.hardware import table
from understudy.recipe import ArchitectureModel, FactoryModel, Model, PretrainedModel, Recipe
from understudy.recipe.key_path import Conflict, conflict_of
from understudy.recipe.tasks import load
from understudy.steps import layers
from understudy.steps.benchmark import tasks_of
from understudy.steps.pretrained_config import config_conflicts, data_shape


class Unknown(NamedTuple):
    """A fact that could not be checked here."""

    text: str
    unreachable: bool = False
    """Whether the check failed to reach the hub: trying again may tell."""


class Note(NamedTuple):
    """A fact that a user may not expect, and that is no error."""

    text: str


Finding = Conflict | Unknown | Note


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
    """Those because the hub could not be reached come first."""
    notes: tuple[str, ...]


def findings(recipe: Recipe, scope: Here) -> Findings:
    """Check everything that a recipe refers to."""
    all_findings = [*_data(recipe, scope), *_data_sets(recipe, scope), *_tokenizer(recipe, scope)]
    all_findings += _benchmarks(recipe, scope)
    for section, model in recipe.models.items():
        all_findings += _model(recipe, model, section, scope)
    all_findings += layers.problems(recipe)
    all_findings += _hardware(recipe, scope)
    problems = tuple(finding for finding in all_findings if not isinstance(finding, Unknown | Note))
    unknown = [finding for finding in all_findings if isinstance(finding, Unknown)]
    unknown.sort(key=lambda finding: not finding.unreachable)
    notes = tuple(finding.text for finding in all_findings if isinstance(finding, Note))
    return Findings(problems, tuple(finding.text for finding in unknown), notes)


def _hardware(recipe: Recipe, scope: Here) -> Iterator[Finding]:
    """Note GPUs that this machine lacks, if the run is to be on it, and hardware that is not in the built-in table.

    It may be in the table of `understudy plan --table`, so it counts as unknown.
    """
    by_job = recipe.resources.written
    jobs = [job for job, resources in by_job.items() if resources.device == "cuda"]
    if jobs and scope.models and device_here() == "cpu":
        settings = ", ".join(f"resources.{job}.device" for job in jobs)
        yield Note(f"{settings}: cuda, and this machine has no GPU; run it on a machine with one, or in a cluster")
    for job, resources in by_job.items():
        if (kind := resources.hardware) and kind not in (types := table()):
            hint = architectures.suggestion(kind.upper(), types)
            yield Unknown(
                f"resources.{job}.hardware: {kind} is none of {', '.join(types)}, and may be in plan --table{hint}"
            )


def _data(recipe: Recipe, scope: Here) -> Iterator[Finding]:
    """Check the path of the data, and that its test split is large enough for the gate.

    Without a test split in the source, the number of all records is the bound.
    """
    source = recipe.data.source
    path = getattr(source, "path", None)
    if path is None or not scope.data:
        yield Unknown(
            f"the number of test records of {source.type}; ingest checks whether they are enough for the gate"
        )
        return
    try:
        reading = registry.read(source, load(recipe.task).FIELDS)
    except InputError as error:
        yield conflict_of(error)
        return
    if why := _emptiness(reading):
        yield ("data", "source", "path"), f"{path} {why}"
        return
    yield from map(Note, (*reading.notes, *_unused_shares(recipe, reading)))
    tested = reading.split_sizes.get("test")
    if tested is None and not recipe.data.test and not getattr(source, "split", None):
        yield ("data", "test"), "is 0, and the data has no test split; set it to a share of the records, such as 0.2"
        return
    examples = reading.total if tested is None else tested
    few = list(shortfalls(load(recipe.task), recipe.gate_metric, recipe.gate, examples, reading.total))
    yield from few
    if not few and tested is None:
        total = reading.total
        yield Unknown(f"the number of test records among {total:,} records; ingest checks whether they are enough")


def _data_sets(recipe: Recipe, scope: Here) -> Iterator[Finding]:
    """Check the paths of further data."""
    fields = load(recipe.task).FIELDS
    for name, data_set in recipe.data_sets.items():
        source_path = getattr(data_set.source, "path", None)
        if source_path is None or not scope.data:
            continue
        try:
            reading = registry.read(data_set.source, fields)
        except InputError as error:
            path, why = conflict_of(error)
            yield ("data_sets", name, *path[1:]), why
        else:
            if why := _emptiness(reading):
                yield ("data_sets", name, "source", "path"), f"{source_path} {why}"
            yield from map(Note, reading.notes)


def _emptiness(reading: Reading) -> str:
    """The reason why a source has no record at all; empty if it has some."""
    if reading.total:
        return ""
    broken = next(reading.records, None)
    reason = f": {broken.name} {broken.reason}" if isinstance(broken, Broken) else ""
    return f"has no records{reason}. Give a source that has some."


def _unused_shares(recipe: Recipe, reading: Reading) -> Iterator[str]:
    """Notes on the recipe's shares for splits that the source has already."""
    shares: dict[Split, float] = {"test": recipe.data.test, "validation": recipe.data.validation}
    for split, share in shares.items():
        if split in recipe.data.model_fields_set and (size := reading.split_sizes.get(split)):
            records = f"{size:,} record{'s' * (size > 1)}"
            yield f"data.{split}: {share:g} is not used, since the source has a {split} split, of {records}"


def _tokenizer(recipe: Recipe, scope: Here) -> Iterator[Finding]:
    settings = recipe.text.tokenizer if recipe.takes("data.text") else None
    if settings is None or settings.pretrained is None:
        return
    if Path(settings.pretrained).is_absolute() and not scope.data:
        yield Unknown(f"{PLACE}: {settings.pretrained} has to exist where the run takes place")
        return
    try:
        paths = files(settings)
    except Unreachable as error:
        yield conflict_of(error) if scope.waits_for_hub else Unknown(str(error), unreachable=True)
    except InputError as error:
        yield conflict_of(error)
    else:
        if "tokenizer.json" not in [path.name for path in paths]:
            yield tuple(PLACE.split(".")), f"{settings.pretrained} has no tokenizer.json"


def _benchmarks(recipe: Recipe, scope: Here) -> Iterator[Finding]:
    """Check the tasks of lm-eval, and their files."""
    if recipe.evaluate.lm_eval is None:
        return
    if not scope.data:
        yield Unknown(f"evaluate.lm_eval: {recipe.evaluate.lm_eval.include} has to exist where the run takes place")
        return
    try:
        tasks_of(recipe)
    except InputError as error:
        path, why = conflict_of(error)
        yield (path, why) if path[0] == "evaluate" else (("evaluate", "lm_eval"), str(error))


def _model(recipe: Recipe, model: Model, section: str, scope: Here) -> Iterator[Finding]:
    match model:
        case ArchitectureModel():
            yield from _architecture(recipe, model, section)
        case FactoryModel() if scope.models:
            if why := user_code.problem(model.factory, scope.search_path):
                yield (*section.split("."), "factory"), why
        case PretrainedModel():
            yield from _pretrained(recipe, model, section, scope)
        case FactoryModel():
            yield Unknown(f"{section}.factory: {model.factory} has to exist where the run takes place")


def _architecture(recipe: Recipe, model: ArchitectureModel, section: str) -> Iterator[Finding]:
    """Check a model type and the names in its configuration; the values are tried before the first training."""
    type_path = (*section.split("."), "type")
    fitting = architectures.types_for(recipe.task)
    if not fitting:
        yield Unknown(f"{section}.type: transformers, which is not installed here, has to have {model.type}")
        return
    if model.type not in fitting:
        if model.type in architectures.model_types():
            yield type_path, f"{model.type} is no architecture for the task {recipe.task}"
        else:
            hint = architectures.suggestion(model.type, fitting)
            yield type_path, f"{model.type} is no architecture of transformers{hint}"
        return
    if recipe.takes("data.text") and architectures.is_composite(model.type):
        yield type_path, architectures.composite_message(model.type, recipe.task)
        return
    expected = data_shape(recipe)
    known_settings = architectures.settings(model.type)
    for key, value in model.config.items():
        path = (*section.split("."), "config", key)
        if key in expected:
            if expected[key] not in (None, value):
                yield path, f"is {value}, the data has {expected[key]}; leave it out"
        elif known_settings is not None and key not in known_settings:
            yield path, f"{model.type} has no such setting{architectures.suggestion(key, known_settings)}"
    aliases = architectures.aliases(model.type)
    for key, problem in architectures.duplicate_settings(aliases, {**expected, **model.config}):
        yield (*section.split("."), "config", key), problem


def _pretrained(recipe: Recipe, model: PretrainedModel, section: str, scope: Here) -> Iterator[Finding]:
    """Check a model's folder or its id on the hub, and that its configuration fits the recipe."""
    setting, folder = f"{section}.pretrained", Path(model.pretrained)
    if folder.is_absolute() and not scope.models:
        yield Unknown(f"{setting}: {model.pretrained} has to exist where the run takes place")
        return
    pinned = model.revision is not None and COMMIT.fullmatch(model.revision)
    if pinned and scope.waits_for_hub and not folder.is_dir():
        return  # it may not be needed, because of the step cache
    try:
        if folder.is_dir():
            check_folder(folder, model, section)
            config: Path | None = folder / "config.json"
        else:
            config = hub_file(model.pretrained, "config.json", model.revision, setting)
    except Unreachable as error:
        yield conflict_of(error) if scope.waits_for_hub else Unknown(str(error), unreachable=True)
    except InputError as error:
        yield conflict_of(error)
    else:
        yield from config_conflicts(recipe, model, config, section)
