"""Refusal of jobs whose pods get less memory than they certainly take, when a run is compiled or submitted."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from understudy.errors import InputError
from understudy.kube.quantities import amount
from understudy.models.facts import Facts
from understudy.plan.certain import Held, evaluation_memory, training_memory
from understudy.plan.estimate import GIB
from understudy.plan.imagined import description_of, facts_of
from understudy.plan.weights import weights_of
from understudy.recipe import ArchitectureModel, Model, Recipe, Resources, Train, degrees

FEWEST_TOKENS, FEWEST_LABELS = 258, 2
"""Assumed for vocabularies and labels that are not counted yet."""


@dataclass(frozen=True)
class Need:
    """Lower bound of a job's memory on all of its nodes together."""

    job: str
    of: str
    bytes: int


def refuse_small_pods(recipe: Recipe) -> None:
    """Refuse a job whose nodes get less memory than it certainly takes.

    Args:
        recipe: with degrees. A job without `resources.<job>.memory` is not checked.

    Raises:
        InputError: a node has too little memory; the message has both numbers.
    """
    limited = {job: found for job, found in recipe.resources.by_job.items() if found.memory}
    for need in _needs(recipe, limited) if limited else ():
        resources = limited[need.job]
        takes, given = need.bytes // resources.nodes, int(amount(resources.memory or "0"))
        if takes > given:
            raise InputError(
                f"resources.{need.job}.memory: {resources.memory} are {given / GIB:.2f} GiB, and {need.of} take "
                f"{takes / GIB:.2f} GiB on each node, without anything else; give it more, or take more nodes"
            )


def _needs(recipe: Recipe, limited: dict[str, Resources]) -> Iterator[Need]:
    facts = _fewest(recipe)
    teacher, student = (_bytes(model, facts, place) for place, model in recipe.models.items())
    if recipe.teacher.train and (found := limited.get("teacher")):
        takes = _training(recipe, recipe.teacher.train, found, Held(teacher, 0))
        yield Need("teacher", _state(recipe.teacher.train, found), takes)
    if found := limited.get("distill"):
        takes = _training(recipe, recipe.student.train, found, Held(student, teacher))
        yield Need("distill", _state(recipe.student.train, found), takes)
    if found := limited.get("evaluate"):
        models = teacher + student * (1 + recipe.student.control)
        spread = degrees(recipe.evaluate.strategy, found.nodes, found.processes)
        yield Need("evaluate", "all models' weights", evaluation_memory(spread, _device(found), models))


def _training(recipe: Recipe, train: Train, resources: Resources, held: Held) -> int:
    found = degrees(train.strategy, resources.nodes, resources.processes)
    kept, shards = recipe.student.teacher_precision, recipe.student.teacher_shards
    return training_memory(train, found, _device(resources), kept, held, shards)


def _state(train: Train, resources: Resources) -> str:
    """A training's tensors in its nodes' memory, in words."""
    if _device(resources) == "cuda" and "parameters" not in train.offload:
        return "the copies of weights and optimiser for a checkpoint"
    return "weights, gradients and the optimiser's state"


def _device(resources: Resources) -> Literal["cpu", "cuda"]:
    """The device of ranks; cuda, where they take less of a node's memory, unless they certainly run on CPUs."""
    return "cpu" if resources.device == "cpu" else "cuda"


def _fewest(recipe: Recipe) -> Facts:
    """The expected examples, with the fewest possible tokens or labels."""
    facts = facts_of(recipe, FEWEST_TOKENS)
    if "labels" in facts:
        facts["labels"] = facts["labels"][:FEWEST_LABELS]
    return facts


def _bytes(model: Model, facts: Facts, where: str) -> int:
    """Bytes of a model's weights; 0 where only its files, or a user's own code, determine them."""
    with suppress(InputError):  # a contradictory configuration, which the job reports, or too few tokens for it
        if isinstance(model, ArchitectureModel):
            return weights_of(description_of(model, facts, where, "new"), where).parameters
    return 0
