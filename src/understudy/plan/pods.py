"""Refusal of jobs whose pods get less memory than they certainly take, when a run is compiled or submitted."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from understudy.errors import InputError
from understudy.graph import EVALUATION, node_of, trainings
from understudy.jobs.payload import TrainingSettings
from understudy.jobs.trainings import training_settings
from understudy.kube.quantities import amount
from understudy.models.facts import Facts
from understudy.plan.estimate import GIB
from understudy.plan.expected import facts_of
from understudy.plan.lower_bounds import Held, evaluation_memory, training_memory
from understudy.plan.placeholders import description_of
from understudy.plan.weights import weights_of
from understudy.recipe import ArchitectureModel, Model, Recipe, Resources, Train, degrees
from understudy.recipe.roles import section_of

FEWEST_TOKENS, FEWEST_LABELS = 258, 2
"""Assumed for vocabularies and labels that are not counted yet."""


@dataclass(frozen=True)
class Need:
    """Lower bound of a job's memory on all of its nodes together."""

    job: str
    tensors: str
    """In words."""
    bytes: int


def refuse_small_pods(recipe: Recipe) -> None:
    """Refuse a job whose nodes get less memory than it certainly takes.

    Args:
        recipe: with degrees. A job without `resources.<job>.memory` is not checked.

    Raises:
        InputError: a node has too little memory; the message has both numbers.
    """
    limited = {job: settings for job, settings in recipe.resources.by_job.items() if settings.memory}
    for need in _largest_needs(recipe, limited) if limited else ():
        resources = limited[need.job]
        needed, available = need.bytes // resources.nodes, int(amount(resources.memory or "0"))
        if needed > available:
            raise InputError(
                f"resources.{need.job}.memory: {resources.memory} are {available / GIB:.2f} GiB, and "
                f"{need.tensors} take {needed / GIB:.2f} GiB on each node, without anything else; "
                "give it more, or take more nodes"
            )


def _largest_needs(recipe: Recipe, limited: dict[str, Resources]) -> list[Need]:
    """The largest need of each job."""
    largest: dict[str, Need] = {}
    for need in _needs(recipe, limited):
        if need.job not in largest or need.bytes > largest[need.job].bytes:
            largest[need.job] = need
    return list(largest.values())


def _needs(recipe: Recipe, limited: dict[str, Resources]) -> Iterator[Need]:
    facts, nodes = _fewest(recipe), trainings(recipe)
    sizes = {path: _bytes(model, facts, path) for path, model in recipe.models.items()}
    for node in nodes:
        if node.training and (resources := limited.get(node.resources)):
            settings = training_settings(recipe, node)
            in_memory = [name for name in node.teachers if not recipe.logit_cache(name)]
            weights = Held(sizes[node.model], sum(sizes[section_of(name)] for name in in_memory))
            yield Need(node.resources, _state(settings.train, resources), _training(settings, resources, weights))
    evaluation = node_of(recipe, EVALUATION).resources
    if resources := limited.get(evaluation):
        models = sum(sizes[node.model] for node in nodes)
        spread = degrees(recipe.evaluate.strategy, resources.nodes, resources.processes)
        yield Need(evaluation, "all models' weights", evaluation_memory(spread, _device(resources), models))


def _training(settings: TrainingSettings, resources: Resources, weights: Held) -> int:
    mesh_degrees = degrees(settings.train.strategy, resources.nodes, resources.processes)
    return training_memory(settings, mesh_degrees, _device(resources), weights)


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


def _bytes(model: Model, facts: Facts, path: str) -> int:
    """Bytes of a model's weights; 0 where only its files, or a user's own code, determine them."""
    with suppress(InputError):  # a contradictory configuration, which the job reports, or too few tokens for it
        if isinstance(model, ArchitectureModel):
            return weights_of(description_of(model, facts, path, "new"), path).parameters
    return 0
