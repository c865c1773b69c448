"""The layers that learners start from, compared with the depths in a recipe."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.recipe import Recipe
from understudy.steps.layers import problems
from understudy.steps.recipe_check import Here, findings

Change = Callable[..., Recipe]
THERE_IS_NONE = "there is no layer 7 in teacher, which has 4; name 1 to 4"


def test_a_layer_that_an_architecture_does_not_have_is_found(digits: Recipe, change: Change) -> None:
    recipe = change(digits, "student.start={layers: [2, 7]}")
    assert list(problems(recipe)) == [(("student", "start", "layers"), THERE_IS_NONE)]
    assert (("student", "start", "layers"), THERE_IS_NONE) in findings(recipe, Here()).problems


@pytest.mark.parametrize("layers", ["[2, 4]", "uniform", "last"])
def test_layers_that_there_are_raise_nothing(digits: Recipe, change: Change, layers: str) -> None:
    assert not list(problems(change(digits, f"student.start.layers={layers}")))


def test_a_pretrained_teachers_depth_is_in_its_configuration(digits: Recipe, change: Change, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 4}))
    recipe = change(digits, f"teacher={{model: {{pretrained: {tmp_path}}}}}", "student.start.layers=[2, 7]")
    assert list(problems(recipe)) == [(("student", "start", "layers"), THERE_IS_NONE)]


@pytest.mark.parametrize("text", ["[]", "nothing", '{"model_type": "vit"}', "{}"])
def test_a_depth_that_is_not_known_is_left_to_the_training(
    digits: Recipe, change: Change, tmp_path: Path, text: str
) -> None:
    (tmp_path / "config.json").write_text(text)
    for model in (f"{{pretrained: {tmp_path}}}", "{pretrained: org/model}", "{type: vit}", "{factory: 'nets:small'}"):
        teacher = f"teacher={{model: {model}, train: {{steps: 1}}}}"
        assert not list(problems(change(digits, teacher, "student.start.layers=[2, 7]")))
