"""The trainings of a recipe, each with its hardware."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from understudy.kube.quantities import amount
from understudy.models.pretrained import Head
from understudy.plan.estimate import Estimate
from understudy.plan.hardware import Hardware
from understudy.plan.lower_bounds import OUTER, moments
from understudy.plan.placeholders import PlaceholderExamples, description_of, facts_of, tokens_of
from understudy.plan.ranking import Placement
from understudy.plan.trace import Planned
from understudy.recipe import LABELS, Degrees, Recipe, Resources, degrees

EXAMPLES = 2**20
"""An arbitrary number: a step does not depend on it."""


@dataclass(frozen=True)
class Job:
    """One training."""

    name: Literal["teacher", "distill"]
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
        """Bytes of each DiLoCo replica in a checkpoint, beside the state that replicas share."""
        train = self.planned.train
        if train.diloco is None:
            return 0
        inner = 1 + moments(train.optimizer) + (train.average is not None)
        return int(state * inner / (inner + OUTER))

    def placement(self, hardware: Hardware) -> Placement:
        """The hardware, nodes and processes that it runs on."""
        return Placement(hardware, self.nodes, self.processes)

    @property
    def degrees(self) -> Degrees | None:
        """The recipe's degrees; None for `auto`."""
        strategy = self.planned.train.strategy
        return None if strategy == "auto" else degrees(strategy, self.nodes, self.processes)


def jobs(recipe: Recipe) -> Iterator[Job]:
    """The recipe's trainings, in their order.

    Raises:
        InputError: a model is invalid, or a pretrained model's configuration or tokenizer is not available.
    """
    facts = facts_of(recipe, tokens_of(recipe))
    examples = PlaceholderExamples(facts, EXAMPLES)
    head: Head = "new" if recipe.teacher.train else "kept"
    teacher = description_of(recipe.teacher.model, facts, "teacher.model", head)
    student = description_of(recipe.student.model, facts, "student.model", "new")
    if recipe.teacher.train:
        resources = recipe.resources.teacher
        teacher_training = Planned(teacher, None, recipe.teacher.train, LABELS, examples, "teacher.train")
        yield _job("teacher", teacher_training, resources)
    student_section = recipe.student
    teacher_settings = student_section.teacher_precision, student_section.teacher_shards
    distillation = Planned(
        student, teacher, student_section.train, recipe.objectives, examples, "student.train", *teacher_settings
    )
    resources = recipe.resources.distill
    yield _job("distill", distillation, resources)


def _job(name: Literal["teacher", "distill"], planned: Planned, resources: Resources) -> Job:
    memory = int(amount(resources.memory)) if resources.memory else None
    hardware = resources.hardware or ("CPU" if resources.device == "cpu" else None)
    return Job(name, planned, resources.nodes, resources.processes, hardware, memory, resources.device)
