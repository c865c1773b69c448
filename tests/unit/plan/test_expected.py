"""The examples that a task expects, compared with prepared ones."""

from pathlib import Path

import numpy as np
import pytest

from understudy.data.loader import open_split
from understudy.models.facts import data_settings, read_facts
from understudy.plan.expected import facts_of, planned_task
from understudy.recipe import Recipe
from understudy.recipe.file import load

RECIPES = [("digits", "image_examples"), ("pydoc", "text_examples")]


@pytest.mark.parametrize("examples", ["image_examples", "text_examples"])
def test_blank_examples_have_the_shapes_of_real_ones(examples: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(examples)
    facts = read_facts(folder)
    real = open_split(folder, "train").batch(np.arange(3))
    blank = planned_task(facts["task"]).blank(facts, 3)
    assert [(part.shape, part.dtype) for part in blank] == [(part.shape, part.dtype) for part in real]
    assert not any(part.any() for part in blank)


@pytest.mark.parametrize(("name", "examples"), RECIPES)
def test_the_same_sizes_of_a_model_follow_as_from_real_examples(
    name: str, examples: str, request: pytest.FixtureRequest
) -> None:
    recipe = load(Path(f"recipes/{name}.yaml"))
    real = read_facts(request.getfixturevalue(examples))
    expected = facts_of(recipe, 300)
    assert expected["task"] == real["task"]
    assert data_settings(expected).keys() == data_settings(real).keys()
    assert {key for key in expected if key != "eos_id"} <= real.keys()


def test_texts_that_are_classified_have_labels_and_the_recipes_length(digits: Recipe) -> None:
    values = digits.model_dump(mode="json", by_alias=True)
    data = {"source": {"type": "parquet", "path": "x"}, "text": {"sequence_length": 16}}
    facts = facts_of(Recipe.model_validate({**values, "task": "text-classification", "data": data}), 300)
    assert (facts["sequence_length"], facts["vocab_size"], len(facts["labels"])) == (16, 300, 10)
    inputs, labels = planned_task("text-classification").blank(facts, 2)
    assert (inputs.shape, labels.shape) == ((2, 16), (2,))
