"""What a user can write in a recipe is in the docs."""

from pathlib import Path
from typing import get_args

import pytest

from understudy.recipe.objectives import OBJECTIVES, ObjectiveSection
from understudy.recipe.section import Section
from understudy.recipe.sources import SOURCES, load

RECIPES = Path("docs/recipes.md").read_text()


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_and_its_keys_are_in_the_docs(name: str) -> None:
    assert f"`{name}`" in RECIPES
    for key in load(name).section.model_fields.keys() - {"type"}:
        assert f"`{key}" in RECIPES or f".{key}`" in RECIPES, key


@pytest.mark.parametrize("section", get_args(get_args(ObjectiveSection)[0]))
def test_an_objective_and_its_keys_are_in_the_docs(section: type[Section]) -> None:
    (name,) = get_args(section.model_fields["type"].annotation)
    assert name in OBJECTIVES
    assert f"type: {name}" in RECIPES
    for key in section.model_fields.keys() - {"type"}:
        assert f"`student.distill.{name}.{key}`" in RECIPES
