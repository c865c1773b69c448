"""What a training job is: the model, what it learns from, and on what."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from understudy.recipe import EvaluatePrecision, Model, ObjectiveSection, TeacherPrecision, Train


@dataclass(frozen=True)
class TrainingJob:
    """What is trained, and on what."""

    model: Model
    section: Literal["teacher.model", "student.model"]
    """Where the recipe describes the model."""
    train: Train
    objectives: tuple[ObjectiveSection, ...]
    """What it learns from."""
    seed: int
    examples: Path
    """The object with the examples."""
    initial: Path | None
    """A fetched pretrained model to start from."""
    teacher: Path | None
    teacher_model: Model | None
    """The object with the teacher, and what the recipe says of it, if an objective needs one."""
    teacher_precision: TeacherPrecision
    """What its weights are kept in."""
    teacher_shards: int | None
    """How many ranks hold a copy of it together."""
    others: Mapping[str, Model]
    """Models that later jobs of the run will train, by their place in the recipe: tried on an example beforehand."""
    asked: tuple[ObjectiveSection, ...]
    """What the student will learn from: tried beforehand too, for what it asks of teacher and student."""
    student_train: Train | None
    """How it will be trained, where that is a later job's: what this names is looked for beforehand too."""
    student_world: tuple[int, int]
    """Nodes of that later job, and processes on each."""
    measured_in: EvaluatePrecision
    """What the models will be measured in: tried beforehand too."""
    processes: int
    """Ranks on each node."""
    threads: int
    """CPU threads of each rank."""
    device: Literal["cpu", "cuda"]
