"""What a job's ranks do, and what they read of the store for it: train or measure models, a version, or the network."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from understudy.jobs.collectives import Collectives
from understudy.recipe import EvaluatePrecision, Model, ObjectiveSection, Recipe, TeacherPrecision, Train


@dataclass(frozen=True, kw_only=True)
class Training:
    """One model's training; what it leaves is a model's files."""

    kind: Literal["training"] = "training"
    examples: str
    initial: str | None
    """A fetched pretrained model to start from."""
    teacher: str | None
    teacher_model: Model | None
    """What the recipe says of that teacher: its files are compared with it."""
    teacher_precision: TeacherPrecision = "fp32"
    """What its weights are kept in."""
    teacher_shards: int | None = None
    """How many ranks hold a copy of it together."""
    model: Model
    train: Train
    objectives: tuple[ObjectiveSection, ...]
    """What the model learns from."""
    seed: int
    others: dict[str, Model] = field(default_factory=dict)
    """Models that later jobs of the run will train, by their place in the recipe: tried on an example beforehand."""
    asked: tuple[ObjectiveSection, ...] = ()
    """What the student will learn from: tried beforehand too, for what it asks of teacher and student."""
    student_train: Train | None = None
    """How it will be trained, where that is a later job's: what this names is looked for beforehand too."""
    student_world: tuple[int, int] = (1, 1)
    """Nodes of that later job, and processes on each."""
    measured_in: EvaluatePrecision = "fp32"
    """What the models of the run will be measured in: whether they compute in it is tried beforehand too."""

    @property
    def reads(self) -> dict[str, str]:
        """The folders that ranks read, by what they are."""
        given = {"examples": self.examples, "teacher": self.teacher, "initial": self.initial}
        return {name: folder for name, folder in given.items() if folder}

    def reading(self, places: Mapping[str, str]) -> "Training":
        """The same work on copies: folders by the names of `reads`."""
        return replace(self, examples=places["examples"], teacher=places.get("teacher"), initial=places.get("initial"))


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The measuring of a run's models, side by side; what it leaves is measures, and results by model."""

    kind: Literal["evaluation"] = "evaluation"
    examples: str
    records: str | None
    """Those that the examples were made from, where a model sees images of another shape."""
    models: dict[str, str]
    """Folders of saved models by role."""
    digests: dict[str, str]
    """The models' digests by role."""
    recipe: Recipe
    """Says what the models are, what to measure and how."""
    known: dict[str, str] = field(default_factory=dict)
    """Folders of results by role: of models that were measured before, and are only timed."""

    @property
    def reads(self) -> dict[str, str]:
        """The folders that ranks read, by what they are."""
        results = {f"results of {role}": folder for role, folder in self.known.items()}
        records = {"records": self.records} if self.records else {}
        return {**self.models, "examples": self.examples, **records, **results}

    def reading(self, places: Mapping[str, str]) -> "Evaluation":
        """The same work on copies: folders by the names of `reads`."""
        models = {role: places[role] for role in self.models}
        known = {role: places[f"results of {role}"] for role in self.known}
        return replace(self, examples=places["examples"], records=places.get("records"), models=models, known=known)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The scoring of test examples through a version, loaded as its users load it; what it leaves is their scores."""

    kind: Literal["serving"] = "serving"
    folder: str
    """Has the version's files, as the registry gives them out, and the examples; it lies in the step's own folder."""

    @property
    def reads(self) -> dict[str, str]:
        """The folders that ranks read from elsewhere in the store: none."""
        return {}

    def reading(self, places: Mapping[str, str]) -> "Serving":
        """The same work on copies of nothing."""
        del places
        return self


Payload = Training | Evaluation | Serving | Collectives
