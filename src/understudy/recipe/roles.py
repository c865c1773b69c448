"""The roles of models in a run: in measures, verdicts, the report and the registry."""

from typing import Final, Literal

TEACHER: Final = "teacher"
STUDENT: Final = "student"
CONTROL: Final = "control"
CHAMPION: Final = "champion"
ROLES = (TEACHER, STUDENT, CONTROL, CHAMPION)
Candidate = Literal["student", "control"]
"""The model that the gate judges and the registry gets."""


def learner_of(role: str) -> str:
    """The path in the recipe of the learner whose model has a role; not for a champion, a model of another recipe.

    A role that is none of the four is the name of one of several teachers.
    """
    if role in (STUDENT, CONTROL):
        return STUDENT
    return TEACHER if role == TEACHER else f"teachers.{role}"


def section_of(role: str) -> str:
    """The path of a role's model in the recipe; not for a champion."""
    return f"{learner_of(role)}.model"
