"""The teacher that the student is compared with: the recipe's, or the best by the gate's metric."""

from typing import Any

import numpy as np
import pytest

from understudy.evaluate.reference import reference_as_teacher, reference_teacher, renamed_roles
from understudy.recipe import Recipe
from understudy.recipe.file import from_values

MODEL = {"factory": "package.module:build"}
TEACHER = {"model": MODEL, "train": {"steps": 1}}


def recipe(metric: str, held_against: str | None = None) -> Recipe:
    values = {
        "name": "several",
        "task": "image-classification",
        "data": {"source": {"type": "digits"}},
        "teachers": {"wide": TEACHER, "deep": TEACHER},
        "student": {"model": MODEL, "train": {"steps": 1}},
        "gate": {"metric": metric, "teacher": held_against},
    }
    return from_values(values, (), "r")


@pytest.mark.parametrize(
    ("metric", "named", "wide", "deep", "best"),
    [
        ("accuracy", None, 0.8, 0.9, "deep"),
        ("accuracy", None, 0.9, 0.8, "wide"),
        ("accuracy", None, 0.9, 0.9, "wide"),
        ("nll", None, 0.8, 0.9, "wide"),
        ("accuracy", "wide", 0.8, 0.9, "wide"),
        ("accuracy", None, None, 0.1, "deep"),
        ("accuracy", None, None, None, "wide"),
    ],
)
def test_it_is_the_named_one_or_the_best(
    metric: str, named: str | None, wide: float | None, deep: float | None, best: str
) -> None:
    assert reference_teacher(recipe(metric, named), {"wide": {metric: wide}, "deep": {metric: deep}}) == best


def test_its_results_get_the_role_of_the_teacher_and_other_roles_keep_their_names() -> None:
    measures: Any = {
        "reference": "deep",
        "models": {"wide": 1, "deep": 2, "student": 3},
        "slices": [{"slice": "deep", "examples": 9, "wide": 0.1, "deep": 0.2, "student": 0.3}],
    }
    arrays = {name: np.zeros(1) for name in ("weights.tokens", "wide.nll", "deep.nll", "student.confidence_sum")}
    changed, renamed = reference_as_teacher(measures, arrays)
    assert changed["models"] == {"wide": 1, "teacher": 2, "student": 3}
    assert changed["slices"] == [{"slice": "deep", "examples": 9, "wide": 0.1, "teacher": 0.2, "student": 0.3}]
    assert list(renamed) == ["weights.tokens", "wide.nll", "teacher.nll", "student.confidence_sum"]
    assert renamed_roles({"wide": 1, "deep": 2}, "deep") == {"wide": 1, "teacher": 2}
