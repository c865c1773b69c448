from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from understudy.recipe import Recipe
from understudy.recipe.file import load

IMAGES = "registry.example:5000/ml/understudy:1.2"


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return load(ROOT / "recipes" / "digits.yaml")


@pytest.fixture(scope="session")
def compiled(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the recipe's pipeline was compiled into."""
    from understudy.pipelines.compiled import write

    folder = tmp_path_factory.mktemp("compiled") / "new" / "folder"
    write(recipe, IMAGES, folder)
    return folder


@pytest.fixture(scope="session")
def spec(compiled: Path) -> dict[str, Any]:
    """The compiled IR."""
    return next(iter(yaml.safe_load_all((compiled / "digits.yaml").read_text())))
