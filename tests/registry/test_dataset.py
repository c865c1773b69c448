import json
from pathlib import Path
from typing import Any

import pytest

from tests.registry.submitted import EXAMPLES, RECIPE
from understudy.recipe import Recipe
from understudy.registry.dataset import dataset


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    (tmp_path / "examples.json").write_text(json.dumps(EXAMPLES))
    return tmp_path


def recipe(**source: Any) -> Recipe:
    return Recipe.model_validate({**RECIPE, "data": {"source": source, "image": {"size": 8, "channels": 1}}})


def test_a_folder_names_its_data_set(examples: Path) -> None:
    logged = dataset(recipe(type="image-folder", path="/data/flowers"), examples, "d" * 64)
    assert (logged.name, logged.source_type, logged.digest) == ("flowers", "image-folder", "d" * 36)
    assert json.loads(logged.source)["path"] == "/data/flowers"


def test_credentials_of_an_address_are_not_logged(examples: Path) -> None:
    logged = dataset(recipe(type="parquet", path="s3://me:secret@bucket/birds"), examples, "d" * 64)
    assert logged.name == "birds"
    assert "secret" not in logged.source
