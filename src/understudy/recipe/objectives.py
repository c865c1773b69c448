"""The objectives that student.distill can name, each with its module, its weight, and its requirements.

The recipe is a layer below the training and imports none of it. An objective's module is loaded by its path, like an
entry point, and has a value OBJECTIVE: its section of the recipe. It does not import torch until a training asks for
the formula, since a recipe is also checked where torch would take seconds to import.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, TypeAdapter, field_validator
from pydantic_core import CoreSchema

from understudy.recipe.section import Section
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
        if count < self.examples:
            yield (
                f"compares at least {self.examples} examples of a micro-batch with each other, and each has {count} "
                f"(batch_size {batch_size} / {degrees.readers} processes / {parts} micro-batches); use a larger "
                "batch_size, or fewer processes or gradient_accumulation_steps"
            )


class ObjectiveSection(Section):
    """An entry of student.distill. Its type names the objective, which defines the other keys."""

    requirements: ClassVar[Requirements]
    type: str
    weight: Weight = 1.0


class TeacherObjective(ObjectiveSection):
    """An objective that compares the student with a teacher."""

    takes_mean: ClassVar[bool] = False
    """Whether it can learn from the mean of several teachers."""
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
    if not any(objective.weight for objective in value if objective.requirements.signals):
        from_teacher = " or ".join(name for name in OBJECTIVES if load(name).requirements.signals)
        raise ValueError(f"nothing in it is learned from the teacher; give {from_teacher} a weight above 0")
    return value


StageObjectives = Annotated[Objectives, BeforeValidator(_refuse_the_old_form)]
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
