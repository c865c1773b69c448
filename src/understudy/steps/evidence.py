"""A run's evidence besides its measures, for the report and the registry: its trained models, lineage and recipe."""

from collections.abc import Mapping
from typing import Any

from understudy.graph import EXAMPLES, RECORDS
from understudy.recipe import Recipe
from understudy.recipe.file import completed
from understudy.recipe.roles import CONTROL, STUDENT
from understudy.steps.step import Work


def roles(recipe: Recipe) -> tuple[str, ...]:
    """The roles of a run's models."""
    return (*recipe.all_teachers, STUDENT, CONTROL)


def lineage(work: Work) -> dict[str, str]:
    """The digests of the run's records, examples and models, by role."""
    return {role: work.inputs[role] for role in (RECORDS, EXAMPLES, *roles(work.recipe)) if role in work.inputs}


def trained(work: Work) -> list[str]:
    """The roles of the run's models among this step's inputs."""
    return [role for role in roles(work.recipe) if role in work.inputs]


def reported_recipe(recipe: Recipe) -> Mapping[str, object]:
    """The recipe without the settings that do not affect the result."""
    checkpoints: Any = {"train": {"checkpoint_every"}, "stages": {"__all__": {"train": {"checkpoint_every"}}}}
    packing: Any = {"text": {"packing"} if recipe.text.packing == "wrapped" else set()}
    if not recipe.takes("data.chat"):
        packing["chat"] = True
    generation: Any = {} if recipe.takes("evaluate.generation") else {"generation": True}
    return completed(recipe).model_dump(
        mode="json",
        by_alias=True,
        exclude={
            "data": packing,
            "evaluate": {"lm_eval": {"include"}, **generation},
            "resources": True,
            "register_": True,
            "teacher": checkpoints,
            "teachers": {"__all__": checkpoints},
            "student": checkpoints,
        },
    )
