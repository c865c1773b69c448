"""Recipes for unit tests."""

from collections.abc import Callable

import pytest

from tests import ROOT
from understudy.recipe import Recipe
from understudy.recipe.file import from_values, load


@pytest.fixture
def digits() -> Recipe:
    return load(ROOT / "recipes" / "digits.yaml")


@pytest.fixture
def change() -> Callable[..., Recipe]:
    """A recipe with overrides."""
    return lambda recipe, *overrides: from_values(recipe.model_dump(mode="json", by_alias=True), overrides, "test")
