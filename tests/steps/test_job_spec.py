from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.models.user_code import user_code
from understudy.recipe import Recipe
from understudy.steps.job_spec import _factories, _others


def test_a_job_tries_the_models_that_are_trained_after_it(digits: Recipe) -> None:
    assert list(_others(digits, "teacher")) == ["student.model"]
    assert list(_others(digits, "control")) == ["teacher.model"]
    assert _others(digits, "distill") == {}


def test_a_job_says_which_source_its_factories_have(
    digits: Recipe, change: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _factories(digits) == {}
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "nets_of_a_job.py").write_text("def small(): ...")
    recipe = change(digits, "student.model={factory: 'nets_of_a_job:small'}")
    assert _factories(recipe) == {"nets_of_a_job:small": user_code("nets_of_a_job").source}
