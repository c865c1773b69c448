import pytest

from understudy.data.sources.columns import check_named, of_fields, split_of
from understudy.errors import InputError
from understudy.recipe.tasks import Kind

FIELDS: dict[str, Kind] = {"text": "text", "second": "optional text", "label": "label"}


def test_a_field_has_the_column_of_its_name_if_the_recipe_names_none() -> None:
    assert of_fields({}, FIELDS) == {"text": "text", "label": "label"}
    assert of_fields({"second": "b", "label": "kind"}, FIELDS) == {"text": "text", "second": "b", "label": "kind"}


def test_what_columns_names_comes_before_a_key_of_the_sections_own() -> None:
    assert of_fields({}, FIELDS, {"label": "x"})["label"] == "x"
    assert of_fields({"label": "y"}, FIELDS, {"label": "x"})["label"] == "y"


def test_a_field_that_the_task_lacks_is_named() -> None:
    with pytest.raises(InputError, match=r"columns\.words: the task has no such field\. Its fields are text, second"):
        of_fields({"words": "a"}, FIELDS)


@pytest.mark.parametrize(
    ("named", "by_default", "key", "column", "field", "other"),
    [
        ({"text": "a", "label": "a"}, {}, "columns.label", "a", "label", "text"),
        ({"text": "label"}, {}, "columns.text", "label", "text", "label"),
        ({"second": "text"}, {}, "columns.second", "text", "second", "text"),
        ({}, {"label": "text"}, "label", "text", "label", "text"),
        ({"text": "label"}, {"label": "label"}, "columns.text", "label", "text", "label"),
    ],
)
def test_two_fields_of_one_column_are_refused(
    named: dict[str, str], by_default: dict[str, str], key: str, column: str, field: str, other: str
) -> None:
    with pytest.raises(InputError) as refused:
        of_fields(named, FIELDS, by_default)
    assert str(refused.value) == (
        f"data.source.{key}: {column} is the column of the field {other}, too; name the column that has the {field}."
    )


def test_a_column_that_is_not_there_or_twice_is_named() -> None:
    check_named("split", "a", "x", ["x", "y", "y"])
    with pytest.raises(InputError, match=r"data\.source\.split: a has no column z\. It has x, y, y: name one of them"):
        check_named("split", "a", "z", ["x", "y", "y"])
    with pytest.raises(InputError, match=r"data\.source\.split: a has 2 columns called y"):
        check_named("split", "a", "y", ["x", "y", "y"])


def test_a_split_may_have_any_of_its_names() -> None:
    assert [split_of("part", "a", name) for name in ("train", "dev", "eval")] == ["train", "validation", "test"]


@pytest.mark.parametrize("value", ["rest", "", None])
def test_a_value_that_names_no_split_is_refused(value: str | None) -> None:
    with pytest.raises(InputError, match=r"data\.source\.split: a#1: column part says .*\. It may say train"):
        split_of("part", "a#1", value)
