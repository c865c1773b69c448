"""The recipe's list student.distill: what the student learns from, each with its weight."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from understudy.recipe.section import Section

Weight = Annotated[float, Field(ge=0)]


class LabelsObjective(Section):
    """The labels: cross-entropy."""

    type: Literal["labels"]
    weight: Weight = 1.0


class LogitsObjective(Section):
    """The teacher's logits (Hinton et al. 2015): temperature^2 * KL(teacher || student), both softened."""

    type: Literal["logits"]
    weight: Weight = 1.0
    temperature: Annotated[float, Field(gt=0)] = 4.0
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
    if all(isinstance(objective, LabelsObjective) or objective.weight == 0 for objective in value):
        raise ValueError("nothing in it is learned from the teacher; give {type: logits} a weight above 0")
    return value


Distill = Annotated[
    tuple[ObjectiveSection, ...], BeforeValidator(_refuse_the_old_form), AfterValidator(_from_the_teacher)
]
LABELS: tuple[ObjectiveSection, ...] = (LabelsObjective(type="labels"),)
"""What a model without a teacher learns from."""
DISTILL: tuple[ObjectiveSection, ...] = (
    LabelsObjective(type="labels", weight=0.1),
    LogitsObjective(type="logits", weight=0.9),
)
"""What a student learns from unless its recipe says something else."""
