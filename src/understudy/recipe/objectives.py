"""The recipe's list student.distill: what the student learns from, each with its weight.

The recipe lies below the training and imports none of it: an objective's section is here, and OBJECTIVES says where its
module is. That is loaded by its path, and its function `objective` makes the objective from its section.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from understudy.recipe.section import Section

OBJECTIVES = {
    "labels": "understudy.distill.labels",
    "logits": "understudy.distill.logits",
}


Weight = Annotated[float, Field(ge=0)]


class LabelsObjective(Section):
    """The labels: cross-entropy."""

    from_teacher: ClassVar[bool] = False
    type: Literal["labels"]
    weight: Weight = 1.0


class LogitsObjective(Section):
    """The teacher's logits (Hinton et al. 2015): temperature^2 * KL(teacher || student), both softened."""

    from_teacher: ClassVar[bool] = True
    type: Literal["logits"]
    weight: Weight = 1.0
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """The factor temperature^2 keeps the gradients as large as those of the labels."""


ObjectiveSection = Annotated[LabelsObjective | LogitsObjective, Field(discriminator="type")]


def _refuse_the_old_form(value: object) -> object:
    """Until version 0.1 this was one section with temperature and alpha."""
    if isinstance(value, dict) and value.keys() <= {"objective", "temperature", "alpha"}:
        alpha = 0.9 if value.get("alpha") is None else value["alpha"]
        temperature = 4.0 if value.get("temperature") is None else value["temperature"]
        soft = f"{{type: logits, weight: {alpha}, temperature: {temperature}}}"
        hard = round(1 - alpha, 6) if isinstance(alpha, int | float) else "1 - alpha"
        raise ValueError(f"is a list of weighted objectives now: [{{type: labels, weight: {hard}}}, {soft}]")
    return (
        tuple(value) if isinstance(value, list) else value
    )  # what JSON calls a list; strict pydantic asks for a tuple


def _from_the_teacher(value: tuple[ObjectiveSection, ...]) -> tuple[ObjectiveSection, ...]:
    taught = [objective for objective in value if objective.from_teacher]
    if not any(objective.weight for objective in taught):
        others = " or ".join(kind for kind in OBJECTIVES if kind != "labels")
        raise ValueError(f"nothing in it is learned from the teacher; give {others} a weight above 0")
    return value


Distill = Annotated[
    tuple[ObjectiveSection, ...], BeforeValidator(_refuse_the_old_form), AfterValidator(_from_the_teacher)
]
LABELS: tuple[ObjectiveSection, ...] = (LabelsObjective(type="labels"),)
"""What a model without a teacher learns from."""


def _mixed(labels: float, temperature: float) -> tuple[ObjectiveSection, ...]:
    return (
        LabelsObjective(type="labels", weight=labels),
        LogitsObjective(type="logits", weight=round(1 - labels, 6), temperature=temperature),
    )


DISTILL: dict[str, tuple[ObjectiveSection, ...]] = {
    "image-classification": _mixed(0.3, 2.0),
    "causal-lm": _mixed(0.2, 1.0),
}
"""What a student learns from unless its recipe says something else, by the task. benchmarks/defaults.py chose them. The
default of both tasks was labels 0.1, logits 0.9 at T = 4; it made students of text 10 % worse than their control."""
