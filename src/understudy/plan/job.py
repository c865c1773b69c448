"""The trainings of a recipe, each with its hardware."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from understudy.graph import Node, trainings
from understudy.jobs.trainings import training_settings
from understudy.kube.quantities import amount
from understudy.models.facts import Description
from understudy.models.pretrained import Head
from understudy.plan.estimate import Estimate
from understudy.plan.expected import facts_of
from understudy.plan.hardware import Hardware
from understudy.plan.lower_bounds import OUTER, moments
from understudy.plan.placeholders import PlaceholderExamples, description_of, tokens_of
from understudy.plan.planned import Planned
from understudy.plan.ranking import Placement
from understudy.recipe import Degrees, Recipe, Resources, degrees
from understudy.recipe.roles import section_of

EXAMPLES = 2**20
"""An arbitrary number: a step does not depend on it."""


@dataclass(frozen=True)
class Job:
    """One training."""

    name: str
    """That of its node."""
    resources: str
    """The key of its resources in the recipe."""
    planned: Planned
    nodes: int
    processes: int
    """On each node."""
    hardware: str | None
    """Its kind, if the recipe names it; CPU if the recipe asks for one."""
    memory: int | None = None
    """Bytes of each node, if the recipe sets them for a cluster."""
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def checkpoint(self, estimate: Estimate) -> int:
        """Bytes of a checkpoint, of all ranks together."""
        replica = estimate.traced.state * estimate.degrees.world_size // estimate.degrees.dp_replicate
        return replica + self._of_replicas(replica) * estimate.degrees.dp_replicate

    def _of_replicas(self, state: int) -> int:
        """Bytes of each DiLoCo replica in a checkpoint, beside the state that replicas share.

        `state` has weights, moments and average of a replica, and OUTER shared tensors, all of the model's size.
        """
        train = self.planned.train
        if train.diloco is None:
            return 0
        tensors = 1 + moments(train.optimizer) + (train.average is not None)
        return int(state * tensors / (tensors + OUTER))

    @property
    def path(self) -> str:
        """Its path in the recipe."""
        return self.planned.settings.path

    def placement(self, hardware: Hardware) -> Placement:
        """The hardware, nodes and processes that it runs on."""
        return Placement(hardware, self.nodes, self.processes)

    @property
    def degrees(self) -> Degrees | None:
        """The recipe's degrees; None for `auto`."""
        strategy = self.planned.train.strategy
        return None if strategy == "auto" else degrees(strategy, self.nodes, self.processes)


def descriptions(recipe: Recipe) -> dict[str, Description]:
    """The descriptions of a recipe's models, by their path in the recipe.

    Raises:
        InputError: a model is invalid, or a pretrained model's configuration or tokenizer is not available.
    """
    facts = facts_of(recipe, tokens_of(recipe))
    heads: dict[str, Head] = {
        f"{section}.model": "new" if learner.trainings else "kept" for section, learner in recipe.learners.items()
    }
    return {path: description_of(model, facts, path, heads[path]) for path, model in recipe.models.items()}


def jobs(recipe: Recipe) -> Iterator[Job]:
    """The recipe's trainings, in their order. A control's is left out: the student's, without teachers.

    Raises:
        InputError: as of descriptions().
    """
    models = descriptions(recipe)
    examples = PlaceholderExamples(facts_of(recipe, tokens_of(recipe)), EXAMPLES)
    for node in trainings(recipe):
        if not node.training or node.is_control:
            continue
        teachers = {name: models[section_of(name)] for name in node.teachers}
        cached = frozenset(name for name in node.teachers if recipe.logit_cache(name))
        planned = Planned(training_settings(recipe, node), models[node.model], teachers, examples, cached)
        yield _job(node, planned, recipe.resources.by_job[node.resources])


def _job(node: Node, planned: Planned, resources: Resources) -> Job:
    memory = int(amount(resources.memory)) if resources.memory else None
    hardware = resources.hardware or ("CPU" if resources.device == "cpu" else None)
    return Job(
        node.name, node.resources, planned, resources.nodes, resources.processes, hardware, memory, resources.device
    )
