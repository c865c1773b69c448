"""The rules of teachers whose logits are cached: what a training that reads them may do."""

from collections.abc import Iterator

from understudy.recipe.key_path import Conflict, KeyPath
from understudy.recipe.learners import Training, to_key_path, trainings
from understudy.recipe.logits import Sampled
from understudy.recipe.objectives import TeacherObjective
from understudy.recipe.roles import learner_of
from understudy.recipe.schema import Recipe
from understudy.recipe.strategy import degrees

SPLIT = ("pp", "cp", "sequence_parallel")
"""Degrees with which a process has a part of each sequence, or no logits."""


def conflicts(recipe: Recipe) -> Iterator[Conflict]:
    """The contradictions between cached logits and the trainings that read them."""
    for training in trainings(recipe):
        names = [name for name in training.teachers if recipe.logit_cache(name)]
        if names:
            yield from _training(training, names[0])
        if names and len(names) == len(training.teachers):
            for setting in ("teacher_precision", "teacher_shards"):
                if setting in training.learner.model_fields_set:
                    why = "no teacher is in memory, since its logits are cached; remove it"
                    yield (*training.section, setting), why
        for name in names:
            yield from _objectives(recipe, training, name)
    for name in recipe.all_teachers:
        if recipe.logit_cache(name) and len(found := temperatures(recipe, name)) > 1:
            shown = " and ".join(f"{temperature:g}" for temperature in sorted(found))
            why = f"objectives soften its logits at temperatures {shown}, and one is cached; give them the same"
            yield (*to_key_path(learner_of(name)), "logits"), why


def temperatures(recipe: Recipe, name: str) -> set[float]:
    """The temperatures of all objectives that learn from a teacher's logits."""
    names = tuple(recipe.all_teachers)
    return {
        float(getattr(objective, "temperature", 1.0))
        for path in recipe.trainings
        for objective in recipe.objectives_of(path)
        if isinstance(objective, TeacherObjective) and name in objective.names(names)
    }


def temperature_of(recipe: Recipe, name: str) -> float:
    """The one temperature of all objectives that learn from a teacher's cached logits."""
    (temperature,) = temperatures(recipe, name)
    return temperature


def _training(training: Training, name: str) -> Iterator[Conflict]:
    path: KeyPath = (*training.key_path, "train")
    if training.train.augment:
        why = f"changes images at random, and the logits of {name} are cached for unchanged ones"
        yield (*path, "augment"), f"{why}; remove it, or the teacher's section logits"
    if training.train.strategy == "auto":
        yield (*path, "strategy"), f"auto plans for a teacher in memory, and the logits of {name} are cached; give one"
        return
    try:
        chosen = degrees(training.train.strategy, training.resources.nodes, training.resources.processes)
    except ValueError:  # reported where the strategy is checked
        return
    used = [axis for axis in SPLIT if getattr(chosen, axis) not in (1, False)]
    if used:
        why = f"{used[0]} gives a process a part of each example, and the logits of {name} are cached for whole ones"
        yield (*path, "strategy"), f"{why}; use ddp, fsdp, hsdp or tp, or remove the teacher's section logits"


def _objectives(recipe: Recipe, training: Training, name: str) -> Iterator[Conflict]:
    names, is_sampled = tuple(recipe.all_teachers), isinstance(recipe.logit_cache(name), Sampled)
    for at, objective in enumerate(recipe.objectives_of(training.path)):
        if isinstance(objective, TeacherObjective) and name in objective.names(names):
            for why in objective.requirements.cache_conflicts(sampled=is_sampled):
                yield (*training.key_path, "distill", at), why
