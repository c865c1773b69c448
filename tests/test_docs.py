"""What a user can write in a recipe is in the docs."""

from pathlib import Path

import pytest

from understudy.recipe.objectives import OBJECTIVES
from understudy.recipe.sources import SOURCES, load

RECIPES = Path("docs/recipes.md").read_text()


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_and_its_keys_are_in_the_docs(name: str) -> None:
    assert f"`{name}`" in RECIPES
    for key in load(name).section.model_fields.keys() - {"type"}:
        assert f"`{key}" in RECIPES or f".{key}`" in RECIPES, key


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_and_its_keys_are_in_the_docs(name: str) -> None:
    assert name in RECIPES
