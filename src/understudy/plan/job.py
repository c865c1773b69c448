"""The trainings of a recipe, each with what it runs on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from understudy.errors import InputError
from understudy.plan.choices import all_degrees, refusal
from understudy.plan.estimate import Estimate, estimate
from understudy.plan.hardware import Hardware
from understudy.plan.imagined import Imagined, description_of, facts_of
from understudy.plan.trace import Planned, traces
from understudy.recipe import LABELS, Degrees, Recipe, degrees

EXAMPLES = 2**20
"""Whose number does not matter to a step."""


@dataclass(frozen=True)
class Job:
    """One training."""

    name: Literal["teacher", "distill"]
    planned: Planned
    nodes: int
    processes: int
    """On each node."""

    @property
    def steps(self) -> int | None:
        """None where the recipe counts epochs, of which the data alone tells the steps."""
        return self.planned.train.steps

    def checkpoint(self, own: Estimate) -> int:
        """Bytes of a checkpoint, of all ranks together."""
        return own.traced.state * own.degrees.world_size // own.degrees.dp_replicate

    def others(self, hardware: Hardware) -> list[Estimate]:
        """Every other set of degrees that makes sense, the fastest that fit first."""
        own = degrees(self.planned.train.strategy, self.nodes, self.processes)
        found = []
        for other in all_degrees(self.nodes * self.processes):
            if other == own or refusal(self.planned, other, self.processes):
                continue
            try:
                found.append(_estimated(self, other, hardware))
            except InputError:  # a model that cannot be cut or split like this is no choice
                continue
        return sorted(found, key=lambda other: (not other.fits, other.step, other.memory))


def jobs(recipe: Recipe) -> Iterator[Job]:
    """The recipe's trainings, in their order.

    Raises:
        InputError: a model is pretrained: only its files tell what it is.
    """
    facts = facts_of(recipe)
    examples = Imagined(facts, EXAMPLES)
    teacher = description_of(recipe.teacher.model, facts, "teacher.model")
    student = description_of(recipe.student.model, facts, "student.model")
    for where, found in (("teacher.model", teacher), ("student.model", student)):
        if found is None:
            raise InputError(
                f"{where}: is pretrained, and only its files tell what it is; plan with an architecture of its sizes"
            )
    assert teacher is not None
    assert student is not None
    if recipe.teacher.train:
        resources = recipe.resources.teacher
        alone = Planned(teacher, None, recipe.teacher.train, LABELS, examples, "teacher.train")
        yield Job("teacher", alone, resources.nodes, resources.processes)
    taught = Planned(student, teacher, recipe.student.train, recipe.student.distill, examples, "student.train")
    yield Job("distill", taught, recipe.resources.distill.nodes, recipe.resources.distill.processes)


def planned(job: Job, hardware: Hardware) -> Estimate:
    """What a training takes as the recipe has it."""
    return _estimated(job, degrees(job.planned.train.strategy, job.nodes, job.processes), hardware)


def _estimated(job: Job, found: Degrees, hardware: Hardware) -> Estimate:
    train = job.planned.train
    able = "bf16" in hardware.tflops and hardware.is_gpu
    precision = "bf16" if train.precision == "bf16" or (train.precision == "auto" and able) else "fp32"
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    device = "cuda" if hardware.is_gpu else "cpu"
    return estimate(train, found, traces(job.planned, found, device, kind), hardware, job.processes, precision)
