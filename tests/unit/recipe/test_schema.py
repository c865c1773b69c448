import pytest
from pydantic import ValidationError

from understudy.recipe import Recipe
from understudy.recipe.tasks import TASKS, load

DIGITS = {
    "name": "digits",
    "task": "image-classification",
    "data": {"source": {"type": "digits"}},
    "teacher": {"model": {"type": "vit"}, "train": {"steps": 10}},
    "student": {"model": {"type": "vit"}, "train": {"epochs": 2}},
}


def test_nothing_changes_after_loading() -> None:
    recipe = Recipe.model_validate(DIGITS)
    with pytest.raises(ValidationError, match="frozen"):
        recipe.seed = 3  # type: ignore[misc]


def test_an_unknown_key_is_refused_at_every_level() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        Recipe.model_validate({**DIGITS, "sed": 1})
    with pytest.raises(ValidationError, match="Extra inputs"):
        Recipe.model_validate({**DIGITS, "gate": {"margni": 0.1}})


def test_both_names_default_to_the_recipes() -> None:
    recipe = Recipe.model_validate(DIGITS)
    assert (recipe.model_name, recipe.experiment) == ("digits", "digits")
    named = Recipe.model_validate({**DIGITS, "register": {"model": "small"}})
    assert (named.model_name, named.experiment) == ("small", "digits")


@pytest.mark.parametrize("task", TASKS)
def test_all_metrics_of_the_task_are_measured_unless_said_otherwise(task: str) -> None:
    recipe = Recipe.model_validate({**DIGITS, "task": task})
    assert recipe.metrics == load(recipe.task).METRICS
    assert recipe.gate_metric == recipe.metrics[0]


def test_the_gates_metric_is_measured_even_when_it_was_not_asked_for() -> None:
    recipe = Recipe.model_validate({**DIGITS, "evaluate": {"metrics": ["accuracy"]}, "gate": {"metric": "nll"}})
    assert recipe.metrics == ("nll", "accuracy")


def test_a_strategy_is_a_name_or_degrees() -> None:
    train = {"steps": 1, "strategy": {"dp_shard": 2}}
    recipe = Recipe.model_validate({**DIGITS, "student": {"model": {"type": "vit"}, "train": train}})
    assert recipe.student.train.strategy.dp_shard == 2  # type: ignore[union-attr]
    assert recipe.teacher.train is not None
    assert recipe.teacher.train.strategy == "single"


def test_a_recipe_survives_json() -> None:
    recipe = Recipe.model_validate(DIGITS)
    assert Recipe.model_validate(recipe.model_dump(mode="json", by_alias=True)) == recipe
