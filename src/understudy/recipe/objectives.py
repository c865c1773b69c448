"""The recipe's list student.distill: the student's objectives, each with its weight.

The recipe is a layer below the training and imports none of it. An objective's section is here, and its module is in
OBJECTIVES. The module is loaded by its path, and its function `objective` builds the objective from the section.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from understudy.recipe.section import Section

OBJECTIVES = {
    "labels": "understudy.objectives.labels",
    "logits": "understudy.objectives.logits",
}


Weight = Annotated[float, Field(ge=0)]


class LabelsObjective(Section):
    """Cross-entropy with the labels."""

    from_teacher: ClassVar[bool] = False
    type: Literal["labels"]
    weight: Weight = 1.0


class LogitsObjective(Section):
    """KL divergence from the teacher (Hinton et al. 2015): temperature^2 * KL(teacher || student), both softened."""

    from_teacher: ClassVar[bool] = True
    type: Literal["logits"]
    weight: Weight = 1.0
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """Logits are divided by it. The factor temperature^2 keeps gradients as large as those of the labels."""


ObjectiveSection = Annotated[LabelsObjective | LogitsObjective, Field(discriminator="type")]


def _refuse_the_old_form(value: object) -> object:
    """Refuse the form of version 0.1: one section with temperature and alpha."""
    if isinstance(value, dict) and value.keys() <= {"objective", "temperature", "alpha"}:
        alpha = 0.9 if value.get("alpha") is None else value["alpha"]
        temperature = 4.0 if value.get("temperature") is None else value["temperature"]
        soft = f"{{type: logits, weight: {alpha}, temperature: {temperature}}}"
        hard = round(1 - alpha, 6) if isinstance(alpha, int | float) else "1 - alpha"
        raise ValueError(f"is a list of weighted objectives now: [{{type: labels, weight: {hard}}}, {soft}]")
    return tuple(value) if isinstance(value, list) else value  # JSON has lists, and strict pydantic requires a tuple


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
"""The objectives of a model without a teacher."""


def labels_and_logits(labels: float, temperature: float) -> tuple[ObjectiveSection, ...]:
    """The objectives of a student by default: the labels with a weight, and the teacher's logits with the rest of 1."""
    return (
        LabelsObjective(type="labels", weight=labels),
        LogitsObjective(type="logits", weight=round(1 - labels, 6), temperature=temperature),
    )
