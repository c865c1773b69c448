"""The description of a training job: its model, objectives and data."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from understudy.recipe import EvaluatePrecision, Model, Objectives, SavedModel, TeacherPrecision, Train


@dataclass(frozen=True)
class TrainingJob:
    """A model to train, its objectives and its data."""

    model: Model
    section: str
    """The model's path in the recipe."""
    place: str
    """The path of its settings, `train`."""
    resources: str
    """The path of its resources."""
    train: Train
    objectives: Objectives
    """The model's objectives."""
    seed: int
    examples: Path
    """The store object with the examples."""
    initial: Path | None
    """A model to start from: fetched, or of an earlier stage."""
    teachers: Mapping[str, SavedModel]
    """The teachers by name, in the recipe's order."""
    teacher_precision: TeacherPrecision
    """The type of the teachers' weights."""
    teacher_shards: int | None
    """Number of ranks that share a copy of a teacher."""
    later_models: Mapping[str, Model]
    """Models that later jobs of the run will train, by their path in the recipe: tested on an example beforehand."""
    student_objectives: Objectives
    """The student's objectives: tested beforehand too, for the outputs that they need of teacher and student."""
    student_teachers: tuple[str, ...]
    """The names of the student's teachers, in their order."""
    student_train: Train | None
    """The student's settings, if a later job trains it: the names in them are looked up beforehand too."""
    student_world: tuple[int, int]
    """Nodes of that later job, and processes on each."""
    measured_in: EvaluatePrecision
    """The precision of the models' evaluation: tested beforehand too."""
    processes: int
    """Ranks on each node."""
    threads: int
    """CPU threads of each rank."""
    device: Literal["cpu", "cuda"]
