"""The learners of a recipe: their trainings, the order of their teachers, and contradictions between them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from understudy.recipe.key_path import Conflict, KeyPath
from understudy.recipe.models import PretrainedModel
from understudy.recipe.objectives import EnsembleObjective, TeacherObjective
from understudy.recipe.roles import CHAMPION, CONTROL, STUDENT, TEACHER, learner_of
from understudy.recipe.schema import Learner, Recipe, Resources, Train
from understudy.recipe.sources import serving
from understudy.recipe.start import Start

RESERVED = frozenset(
    {
        *(TEACHER, STUDENT, CONTROL, CHAMPION),
        *("records", "examples", "measures", "verdict", "registration", "trivial", "weights", "foreign"),
        *("initial", "start", "ingest", "prepare", "distill", "evaluate", "gate", "register", "rejected", "logits"),
        *("benchmark", "benchmarks"),
    }
)
"""Names of steps, tasks and results, which a teacher cannot have."""
OF_DATA_SETS = ("ingest", "prepare", "records", "examples")
"""The names of a data set's steps and results are these with its name, as records-more."""
OF_LOGITS = "logits-"
"""How the names of steps and results begin that cache a teacher's logits."""
NUMBERED = re.compile(r".*-[0-9]+")
"""Names like those of a learner's stages."""


def to_key_path(path: str) -> KeyPath:
    """A dotted path in the recipe, such as student.stages.0, as keys and indices."""
    return tuple(int(key) if key.isdigit() else key for key in path.split("."))


@dataclass(frozen=True)
class Training:
    """A training of a recipe, with its learner, resources and teachers."""

    path: str
    learner: Learner
    section: KeyPath
    """The path of its learner."""
    train: Train
    job: str
    """The key of its resources."""
    resources: Resources
    teachers: tuple[str, ...]

    @property
    def key_path(self) -> KeyPath:
        """Its path in the recipe, as keys and indices."""
        return to_key_path(self.path)


def job_of(recipe: Recipe, section: str) -> str:
    """The key in `resources` of the trainings of a learner, by its path in the recipe."""
    if section == STUDENT:
        return "distill"
    return section if section in recipe.resources.by_job else TEACHER


def trainings(recipe: Recipe) -> Iterator[Training]:
    """The trainings of a recipe, in its order."""
    for section, learner in recipe.learners.items():
        job = job_of(recipe, section)
        for path in paths_of(recipe, section):
            train, resources = recipe.trainings[path].train, recipe.resources.by_job[job]
            teachers = recipe.teachers_of(path)
            yield Training(path, learner, to_key_path(section), train, job, resources, teachers)


def paths_of(recipe: Recipe, section: str) -> list[str]:
    """The paths of a learner's trainings, in order, by its path in the recipe."""
    return [path for path in recipe.trainings if path == section or path.startswith(f"{section}.stages.")]


def with_train(recipe: Recipe, path: str, train: Train) -> Recipe:
    """The recipe with other settings for the training at a path."""
    section, _, number = path.partition(".stages.")
    learner = recipe.learners[section]
    if learner.stages is None:
        changed = learner.model_copy(update={"train": train})
    else:
        stages = list(learner.stages)
        stages[int(number)] = stages[int(number)].model_copy(update={"train": train})
        changed = learner.model_copy(update={"stages": tuple(stages)})
    group, _, name = section.partition(".")
    value = {**recipe.teachers, name: changed} if name else changed
    return recipe.model_copy(update={group: value})


def start_of(recipe: Recipe, path: str) -> Start | None:
    """The layers that the training at a path starts from, with the name of their teacher; None for a later stage."""
    section, _, number = path.partition(".stages.")
    start = recipe.learners[section].start
    if start is None or number not in ("", "0"):
        return None
    return start.model_copy(update={"teacher": _layers_from(recipe, section)})


def starts(recipe: Recipe) -> dict[str, Start]:
    """The layers that learners start from, by the learner's path in the recipe."""
    candidates = {section: start_of(recipe, section) for section in recipe.learners}
    return {section: start for section, start in candidates.items() if start}


def in_order(recipe: Recipe) -> list[str]:
    """The names of all teachers, each after its own teachers; in the recipe's order where that does not decide."""
    remaining = {name: _teachers(recipe, name) for name in recipe.all_teachers}
    ordered: list[str] = []
    while remaining:
        ready = [name for name, teachers in remaining.items() if teachers <= set(ordered)]
        assert ready, "a circle is refused with the recipe"
        ordered += ready
        remaining = {name: teachers for name, teachers in remaining.items() if name not in ready}
    return ordered


def conflicts(recipe: Recipe) -> Iterator[Conflict]:
    """Contradictions between learners: each path, and the fix."""
    yield from _names(recipe)
    yield from _data_sets(recipe)
    yield from _pretrained(recipe)
    unknown = [*_unknown_teachers(recipe), *_unknown_starts(recipe)]
    yield from unknown
    if unknown:
        return
    circle = _circle(recipe)
    if circle:
        links = " -> ".join([*circle, circle[0]])
        why = f"{links}: teachers learn from each other in a circle; remove one objective"
        if any(recipe.learners[learner_of(name)].start for name in circle):
            why = f"{links}: teachers learn or start from each other in a circle; remove one objective or start"
        yield to_key_path(learner_of(circle[0])), why
    yield from _unused(recipe)
    yield from _means(recipe)
    if not any(recipe.teachers_of(path) for path in recipe.trainings if path.startswith(STUDENT)):
        yield (STUDENT, "stages"), "no stage learns from a teacher; add an objective that does, such as logits"


def _teachers(recipe: Recipe, name: str) -> set[str]:
    """The names of the teachers that come before a teacher: its own, and the one whose layers it starts from."""
    section = learner_of(name)
    layers_from = _layers_from(recipe, section)
    return _own_teachers(recipe, section) | ({layers_from} if layers_from else set())


def _own_teachers(recipe: Recipe, section: str) -> set[str]:
    """The names of a learner's teachers."""
    return {teacher for path in paths_of(recipe, section) for teacher in recipe.teachers_of(path)}


def _layers_from(recipe: Recipe, section: str) -> str | None:
    """The teacher whose layers a learner starts from: the named one, or its only one; None if it starts from none."""
    start = recipe.learners[section].start
    if start is None or start.teacher:
        return start.teacher if start else None
    teachers = _own_teachers(recipe, section)
    return teachers.pop() if len(teachers) == 1 else None


def _names(recipe: Recipe) -> Iterator[Conflict]:
    of_data_sets = {f"{prefix}-{name}" for prefix in OF_DATA_SETS for name in recipe.data_sets}
    for name in recipe.teachers:
        if name in RESERVED or name in of_data_sets or NUMBERED.fullmatch(name) or name.startswith(OF_LOGITS):
            yield ("teachers", name), "names a step or result of every run; take another name"
    for name in recipe.resources.teachers:
        if name not in recipe.teachers:
            yield ("resources", "teachers", name), f"there is no such teacher; name one of {_all(recipe)}"
    if recipe.gate.teacher and recipe.gate.teacher not in recipe.all_teachers:
        yield ("gate", "teacher"), f"there is no teacher {recipe.gate.teacher}; name one of {_all(recipe)}"


def _data_sets(recipe: Recipe) -> Iterator[Conflict]:
    used = set()
    for path, stage in recipe.trainings.items():
        if stage.data is None:
            continue
        used.add(stage.data)
        if stage.data not in recipe.data_sets:
            names = ", ".join(recipe.data_sets) or "none is given"
            yield (*to_key_path(path), "data"), f"there is no data set {stage.data} in data_sets ({names})"
        if stage.train.validate_every:
            why = "a data set of data_sets has no validation split; remove validate_every, keep_best and patience"
            yield (*to_key_path(path), "train", "validate_every"), why
    fitting = serving(recipe.task)
    for name, data_set in recipe.data_sets.items():
        if name not in used:
            yield ("data_sets", name), "no stage trains on it; name it in the `data` of a stage, or remove it"
        if data_set.source.type not in fitting:
            why = f"{data_set.source.type} holds no records for the task {recipe.task}; use {', '.join(fitting)}"
            yield ("data_sets", name, "source", "type"), why


def teacher_objectives(recipe: Recipe) -> Iterator[tuple[str, KeyPath, TeacherObjective]]:
    """Each objective that compares with a teacher: its training's path, its path, and its section."""
    for path in recipe.trainings:
        for at, section in enumerate(recipe.objectives_of(path)):
            if isinstance(section, TeacherObjective):
                yield path, (*to_key_path(path), "distill", at), section


def _unknown_teachers(recipe: Recipe) -> Iterator[Conflict]:
    for path, key_path, section in teacher_objectives(recipe):
        if section.teacher is None and not path.startswith(STUDENT):
            choices = [name for name in recipe.all_teachers if learner_of(name) != path.partition(".stages")[0]]
            choice = f"one of {', '.join(choices)}" if choices else "another teacher, which has to be added"
            yield (*key_path, "teacher"), f"a teacher's own teacher has to be named; give {choice}"
        for name in section.names(()):
            if name not in recipe.all_teachers:
                yield (*key_path, "teacher"), f"there is no teacher {name}; name one of {_all(recipe)}"


def _unknown_starts(recipe: Recipe) -> Iterator[Conflict]:
    for section, learner in recipe.learners.items():
        key_path = (*to_key_path(section), "start", "teacher")
        if learner.start is None:
            continue
        if learner.start.teacher and learner.start.teacher not in recipe.all_teachers:
            yield key_path, f"there is no teacher {learner.start.teacher}; name one of {_all(recipe)}"
        elif _layers_from(recipe, section) is None:
            choices = [name for name in recipe.all_teachers if learner_of(name) != section]
            choice = f"one of {', '.join(choices)}" if choices else "another teacher, which has to be added"
            yield key_path, f"the teacher that gives the layers has to be named, unless there is one; give {choice}"


def _pretrained(recipe: Recipe) -> Iterator[Conflict]:
    """Pretrained models that start from layers."""
    for section, learner in recipe.learners.items():
        if learner.start and isinstance(learner.model, PretrainedModel):
            why = "the model is pretrained, and has its first weights from there; remove it, or give the model a type"
            yield (*to_key_path(section), "start"), why


def _circle(recipe: Recipe) -> list[str]:
    """Teachers that learn or start from each other in a circle; empty if there is none."""
    remaining = {name: _teachers(recipe, name) for name in recipe.all_teachers}
    while ready := {name for name, teachers in remaining.items() if not teachers & remaining.keys()}:
        remaining = {name: teachers for name, teachers in remaining.items() if name not in ready}
    path = [next(iter(remaining))] if remaining else []
    while remaining:  # each of them has a teacher among them
        following = min(remaining[path[-1]] & remaining.keys())
        if following in path:
            return path[path.index(following) :]
        path.append(following)
    return []


def _unused(recipe: Recipe) -> Iterator[Conflict]:
    used = {name for path in recipe.trainings for name in recipe.teachers_of(path)} | {recipe.gate.teacher}
    used |= {start.teacher for start in starts(recipe).values()}
    for name in recipe.all_teachers:
        if name not in used:
            yield to_key_path(learner_of(name)), "nothing learns from it; name it in an objective, or remove it"


def _means(recipe: Recipe) -> Iterator[Conflict]:
    """Objectives that cannot learn from the mean of several teachers."""
    for _, key_path, section in teacher_objectives(recipe):
        names = section.names(tuple(recipe.all_teachers))
        if len(names) > 1 and not isinstance(section, EnsembleObjective):
            why = f"{section.type} compares with one teacher, and there are {', '.join(names)}; name one"
            yield (*key_path, "teacher"), why


def _all(recipe: Recipe) -> str:
    return ", ".join(recipe.all_teachers)
