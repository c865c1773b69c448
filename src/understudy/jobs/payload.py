"""Payloads of jobs: the work of the ranks, and the store's folders that it reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from understudy.jobs.collectives import Collectives
from understudy.recipe import (
    Evaluate,
    EvaluatePrecision,
    Model,
    Objectives,
    Recipe,
    SavedLayers,
    SavedLogits,
    SavedModel,
    Start,
    TeacherPrecision,
    Train,
)
from understudy.recipe.logits import LogitCache


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """A training, as the recipe describes it. jobs/trainings.py fills it in."""

    learner: str
    """The path in the recipe of the model that is trained, such as student."""
    path: str
    """The path of the training: that of the learner, or of one of its stages."""
    model: Model
    train: Train
    objectives: Objectives
    """The model's objectives."""
    seed: int
    teacher_precision: TeacherPrecision = "fp32"
    """Precision of the teachers' weights."""
    teacher_shards: int | None = None
    """Number of ranks that share a copy of a teacher."""
    later_models: dict[str, Model] = field(default_factory=dict)
    """Models that other jobs of the run train, by their path in the recipe: tried on an example beforehand."""
    later_starts: dict[str, Start] = field(default_factory=dict)
    """The layers that later models start from, by their learner's path in the recipe: compared beforehand too."""
    student_objectives: Objectives = ()
    """The student's objectives: tried beforehand too, for the outputs that they need of teacher and student."""
    student_teachers: tuple[str, ...] = ()
    """The names of the student's teachers, in their order."""
    student_train: Train | None = None
    """The student's training settings, if a later job trains it: layer names in them are checked beforehand too."""
    student_world: tuple[int, int] = (1, 1)
    """Nodes of that later job, and processes per node."""
    measured_in: EvaluatePrecision = "fp32"
    """Precision in which the run's models will be evaluated: tried beforehand too."""

    @property
    def model_path(self) -> str:
        """The path of the model's section in the recipe."""
        return f"{self.learner}.model"

    @property
    def train_path(self) -> str:
        """The path of `train` in the recipe."""
        return f"{self.path}.train"


@dataclass(frozen=True, kw_only=True)
class TrainingJob(TrainingSettings):
    """Training of one model, as ranks read it; the result is the model's files."""

    kind: Literal["training"] = "training"
    examples: Path
    initial: Path | None
    """A model to start from: fetched, or of an earlier stage."""
    start: SavedLayers | None = None
    """Layers of a teacher to start from."""
    teachers: dict[str, SavedModel | SavedLogits] = field(default_factory=dict)
    """By name, in the recipe's order."""

    @property
    def reads(self) -> dict[str, str]:
        """The folders that ranks read, by name."""
        initial = {"initial": str(self.initial)} if self.initial else {}
        start = {"start": self.start.folder} if self.start else {}
        return {
            "examples": str(self.examples),
            **initial,
            **start,
            **{name: teacher.folder for name, teacher in self.teachers.items()},
        }

    def reading(self, copies: Mapping[str, str]) -> "TrainingJob":
        """The same work on copied folders, by the names of `reads`."""
        teachers = {name: replace(teacher, folder=copies[name]) for name, teacher in self.teachers.items()}
        initial = Path(copies["initial"]) if self.initial else None
        start = replace(self.start, folder=copies["start"]) if self.start else None
        return replace(self, examples=Path(copies["examples"]), initial=initial, start=start, teachers=teachers)


@dataclass(frozen=True, kw_only=True)
class LogitCaching:
    """Caching a teacher's logits on the training split of examples; the result is their files."""

    kind: Literal["logits"] = "logits"
    examples: str
    teacher: SavedModel
    name: str
    """The teacher's, in the recipe."""
    cache: LogitCache
    """How much is cached."""
    temperature: float
    """That of the objectives which read them."""
    digests: dict[str, str]
    """Of the teacher and the examples, by role."""
    evaluate: Evaluate
    """Precision, batch size, and the model's layout over processes."""

    @property
    def reads(self) -> dict[str, str]:
        """The folders that ranks read, by name."""
        return {"examples": self.examples, self.name: self.teacher.folder}

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that the result states."""
        return {**self.digests, "temperature": self.temperature, "method": self.cache.model_dump(mode="json")}

    def reading(self, copies: Mapping[str, str]) -> "LogitCaching":
        """The same work on copied folders, by the names of `reads`."""
        return replace(self, examples=copies["examples"], teacher=replace(self.teacher, folder=copies[self.name]))


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Side-by-side evaluation of a run's models; the result is measures, and results by model."""

    kind: Literal["evaluation"] = "evaluation"
    examples: str
    records: str | None
    """The source records of the examples, if a model takes images of another shape."""
    models: dict[str, str]
    """Folders of saved models by role."""
    digests: dict[str, str]
    """The models' digests by role."""
    recipe: Recipe
    """Defines the models, and the measures with their settings."""
    known: dict[str, str] = field(default_factory=dict)
    """Folders of earlier results by role: these models are only timed."""

    @property
    def reads(self) -> dict[str, str]:
        """The folders that ranks read, by name."""
        results = {f"results of {role}": folder for role, folder in self.known.items()}
        records = {"records": self.records} if self.records else {}
        return {**self.models, "examples": self.examples, **records, **results}

    def reading(self, copies: Mapping[str, str]) -> "Evaluation":
        """The same work on copied folders, by the names of `reads`."""
        models = {role: copies[role] for role in self.models}
        results = {role: copies[f"results of {role}"] for role in self.known}
        return replace(self, examples=copies["examples"], records=copies.get("records"), models=models, known=results)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Scoring of test examples through a registered version, loaded as by its users; the result is the scores."""

    kind: Literal["serving"] = "serving"
    folder: str
    """A folder inside the step's: the version's files as the registry serves them, and the examples."""

    @property
    def reads(self) -> dict[str, str]:
        """The folders that ranks read from elsewhere in the store: none."""
        return {}

    def reading(self, copies: Mapping[str, str]) -> "Serving":
        """The same work: there are no folders to replace."""
        del copies
        return self


Payload = TrainingJob | LogitCaching | Evaluation | Serving | Collectives
