"""A run's evidence besides its measures, for the report and the registry: its trained models, lineage and recipe."""

from collections.abc import Mapping

from understudy.graph import EXAMPLES, RECORDS
from understudy.recipe import Recipe
from understudy.recipe.roles import CONTROL, STUDENT, TEACHER
from understudy.steps.step import Work

TRAINED = (TEACHER, STUDENT, CONTROL)
"""The roles of a run's models."""
LINEAGE = (RECORDS, EXAMPLES, *TRAINED)


def lineage(work: Work) -> dict[str, str]:
    """The digests of the run's records, examples and models, by role."""
    return {role: work.inputs[role] for role in LINEAGE if role in work.inputs}


def trained(work: Work) -> list[str]:
    """The roles of the run's models among this step's inputs."""
    return [role for role in TRAINED if role in work.inputs]


def reported_recipe(recipe: Recipe) -> Mapping[str, object]:
    """The recipe without the settings that do not affect the result."""
    checkpoints = {"train": {"checkpoint_every"}}
    packing = {"text": {"packing"} if recipe.text.packing == "wrapped" else set()}
    student = recipe.student.model_copy(update={"distill": recipe.objectives})
    return recipe.model_copy(update={"student": student}).model_dump(
        mode="json",
        by_alias=True,
        exclude={
            "data": packing,
            "resources": True,
            "register_": True,
            "teacher": checkpoints,
            "student": checkpoints,
        },
    )
