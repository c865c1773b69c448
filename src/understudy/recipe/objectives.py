"""The objectives that student.distill can name, each with its module, its weight, and its requirements.

The recipe is a layer below the training and imports none of it. An objective's module is loaded by its path, like an
entry point, and has a value OBJECTIVE: its section of the recipe. It does not import torch until a training asks for
the formula, since a recipe is also checked where torch would take seconds to import.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    TypeAdapter,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from understudy.recipe.section import Positive, Section
from understudy.recipe.strategy import Degrees

OBJECTIVES = {
    "labels": "understudy.objectives.labels",
    "logits": "understudy.objectives.logits",
    "hidden_states": "understudy.objectives.hidden_states",
    "cosine": "understudy.objectives.cosine",
    "reverse_kl": "understudy.objectives.reverse_kl",
    "jsd": "understudy.objectives.jsd",
    "skewed_kl": "understudy.objectives.skewed_kl",
    "total_variation": "understudy.objectives.total_variation",
    "logits_mse": "understudy.objectives.logits_mse",
    "decoupled_kd": "understudy.objectives.decoupled_kd",
    "rkd": "understudy.objectives.rkd",
    "attention_transfer": "understudy.objectives.attention_transfer",
    "crd": "understudy.objectives.crd",
}

Weight = Annotated[float, Field(ge=0)]


class WeightSchedule(Section):
    """A weight that changes during a training, from `start` to `end`; it stays there."""

    start: Weight
    end: Weight
    steps: Positive | None = None
    """Steps from one to the other. Default: all of the training."""
    form: Literal["linear", "cosine"] = "linear"
    """Of the way: a line, or half a period of a cosine, which is flat at both ends."""

    @model_validator(mode="after")
    def _changes(self) -> Self:
        if self.start == self.end:
            raise ValueError(f"start and end are both {self.start:g}; give the number instead")
        return self


def _form(weight: object) -> str:
    return "schedule" if isinstance(weight, dict | WeightSchedule) else "number"


ScheduledWeight = Annotated[
    Annotated[Weight, Tag("number")] | Annotated[WeightSchedule, Tag("schedule")], Discriminator(_form)
]
"""The same at every step, or by a schedule."""
TeacherWeights = Literal["equal", "confidence", "label"] | dict[str, Annotated[Weight, Field(allow_inf_nan=False)]]
"""A rule for the weights of several teachers, or a weight for each by name."""
Extra = Literal["hidden_states", "attentions"]
"""An output of a model besides its logits."""
Feature = Literal["pp", "cp", "tp", "sequence_parallel", "packing", "mixup"]
"""A way to split a model or its sequences over processes, to keep packed documents apart, or to mix examples."""
Cache = Literal["cached", "sampled"]
"""A teacher's logits that are read from the store: the largest ones, or sampled ones."""

NOT_SAMPLED = (
    "is no mean over the teacher's distribution, so sampled classes would bias it; cache top_k or nucleus, or take "
    "logits"
)
"""Why an objective refuses sampled logits."""


@dataclass(frozen=True)
class Requirements:
    """The outputs that an objective compares, and the features of a training that it does not work with."""

    signals: frozenset[Literal["logits"] | Extra] = frozenset()
    """Outputs of the teacher; none if it compares the student with the labels alone."""
    refuses: Mapping[Feature, str] = field(default_factory=dict)
    """For each feature that it does not work with: the reason, and the fix."""
    refuses_cache: Mapping[Cache, str] = field(default_factory=dict)
    """The same for cached logits: `sampled` refuses only those."""
    examples: int = 1
    """Fewest examples of a micro-batch, for an objective that compares them with each other."""

    @property
    def extras(self) -> frozenset[Extra]:
        """Outputs besides logits, which the student must give, too."""
        return frozenset(signal for signal in self.signals if signal != "logits")

    def cache_conflicts(self, *, sampled: bool) -> Iterator[str]:
        """The reasons why the objective cannot learn from cached logits, sampled ones or the largest."""
        if self.extras:
            names = " and ".join(sorted(self.extras)).replace("_", " ")
            yield f"compares {names}, and the teacher's logits alone are cached; remove its section logits"
        if "cached" in self.refuses_cache:
            yield self.refuses_cache["cached"]
        elif sampled and "sampled" in self.refuses_cache:
            yield self.refuses_cache["sampled"]

    def conflicts(
        self, degrees: Degrees | None, *, packed: bool, mixed: bool, batch_size: int, parts: int
    ) -> Iterator[str]:
        """The reasons why the objective does not work in a training.

        Args:
            degrees: the student's; None if they are not chosen yet.
            packed: whether sequences hold several documents, which are kept apart.
            mixed: whether examples are mixed from two, with two labels.
            batch_size: examples of a step.
            parts: micro-batches of each process in a step.
        """
        degrees = degrees or Degrees()
        used: dict[Feature, bool] = {
            "pp": degrees.pp > 1,
            "cp": degrees.cp > 1,
            "tp": degrees.tp > 1,
            "sequence_parallel": degrees.sequence_parallel,
            "packing": packed,
            "mixup": mixed,
        }
        yield from (why for feature, why in self.refuses.items() if used[feature])
        count = batch_size // (degrees.readers * parts)
        if self.examples > 1 and count < self.examples:
            yield (
                f"compares at least {self.examples} examples of a micro-batch with each other, and each has {count} "
                f"(batch_size {batch_size} / {degrees.readers} processes / {parts} micro-batches); use a larger "
                "batch_size, or fewer processes or gradient_accumulation_steps"
            )


class ObjectiveSection(Section):
    """An entry of student.distill. Its type names the objective, which defines the other keys."""

    requirements: ClassVar[Requirements]
    type: str
    weight: ScheduledWeight = 1.0

    @property
    def weights(self) -> tuple[float, float]:
        """Its weight at the start and at the end."""
        return (self.weight.start, self.weight.end) if isinstance(self.weight, WeightSchedule) else (self.weight,) * 2


class TeacherObjective(ObjectiveSection):
    """An objective that compares the student with a teacher."""

    teacher: Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=2)] | None = None
    """The name of a teacher, or of several, whose mean it is. Default: all teachers of the training."""

    @field_validator("teacher")
    @classmethod
    def _once(cls, teacher: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if isinstance(teacher, tuple) and len(set(teacher)) < len(teacher):
            raise ValueError("names a teacher twice; name each once")
        return teacher

    def names(self, teachers: tuple[str, ...]) -> tuple[str, ...]:
        """Its teachers among those of the training."""
        if self.teacher is None:
            return teachers
        return (self.teacher,) if isinstance(self.teacher, str) else self.teacher

    def chosen(self, teachers: tuple[str, ...]) -> tuple[int, ...]:
        """Indices of its teachers among those of the training."""
        return tuple(teachers.index(name) for name in self.names(teachers))


def _are_equal(weights: TeacherWeights) -> bool:
    return weights == "equal"


class EnsembleObjective(TeacherObjective):
    """An objective that can learn from several teachers together, from the mean of their distributions or logits."""

    teacher_weights: Annotated[TeacherWeights, Field(exclude_if=_are_equal)] = "equal"
    """Weights of several teachers in their mean: equal; by confidence, larger where a teacher's entropy is lower (Kwon
    et al. 2020); by label, larger where a teacher's cross-entropy with the label is lower (Zhang et al. 2022, CA-MKD);
    or a number for each teacher by name, divided by their sum. Equal ones are left out of a dump, so that recipes from
    before there was a choice keep their keys."""


def load(name: str) -> type[ObjectiveSection]:
    """An objective's section by its name in OBJECTIVES."""
    section: type[ObjectiveSection] = importlib.import_module(OBJECTIVES[name]).OBJECTIVE
    return section


class _OneOfObjectives:
    """Makes a section a union of the objectives' sections for pydantic, discriminated by type."""

    def __get_pydantic_core_schema__(self, _section: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        sections = tuple(load(name) for name in OBJECTIVES)
        return handler.generate_schema(Annotated[Union[sections], Field(discriminator="type")])  # noqa: UP007


Objectives = tuple[Annotated[ObjectiveSection, _OneOfObjectives()], ...]
"""The objectives of a training; its loss is their weighted sum."""


def _refuse_the_old_form(value: object) -> object:
    """Refuse the form of version 0.1: one section with temperature and alpha."""
    if isinstance(value, dict) and value.keys() <= {"objective", "temperature", "alpha"}:
        alpha = 0.9 if value.get("alpha") is None else value["alpha"]
        temperature = 4.0 if value.get("temperature") is None else value["temperature"]
        soft = f"{{type: logits, weight: {alpha}, temperature: {temperature}}}"
        hard = round(1 - alpha, 6) if isinstance(alpha, int | float) else "1 - alpha"
        raise ValueError(f"is a list of weighted objectives now: [{{type: labels, weight: {hard}}}, {soft}]")
    return _as_tuples(value)


def _as_tuples(value: object) -> object:
    """The value with tuples for lists: JSON has lists, and strict pydantic requires tuples."""
    if isinstance(value, dict):
        return {key: _as_tuples(item) for key, item in value.items()}
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _require_a_teacher(value: Objectives) -> Objectives:
    if not any(any(objective.weights) for objective in value if objective.requirements.signals):
        from_teacher = " or ".join(name for name in OBJECTIVES if load(name).requirements.signals)
        raise ValueError(f"nothing in it is learned from the teacher; give {from_teacher} a weight above 0")
    return value


def _require_a_loss(value: Objectives) -> Objectives:
    scheduled = any(isinstance(objective.weight, WeightSchedule) for objective in value)
    for place, weights in zip(
        ("start", "end"), zip(*(objective.weights for objective in value), strict=True), strict=True
    ):
        if scheduled and not any(weights):
            raise ValueError(f"all weights are 0 at the {place}; give one objective a weight there")
    return value


StageObjectives = Annotated[Objectives, BeforeValidator(_refuse_the_old_form), AfterValidator(_require_a_loss)]
Distill = Annotated[StageObjectives, AfterValidator(_require_a_teacher)]


def without_teacher() -> Objectives:
    """The objectives of a training without a teacher."""
    return _sections({"type": "labels"})


def labels_and_logits(labels: float, temperature: float) -> Objectives:
    """A student's default objectives: the labels with the given weight, and the teacher's logits with 1 minus that."""
    soft = {"type": "logits", "weight": round(1 - labels, 6), "temperature": temperature}
    return _sections({"type": "labels", "weight": labels}, soft)


def _sections(*values: dict[str, Any]) -> Objectives:
    return _adapter().validate_python(values)


@cache
def _adapter() -> TypeAdapter[Objectives]:
    return TypeAdapter(Objectives)
