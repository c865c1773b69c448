from understudy.recipe import Recipe
from understudy.steps.job_spec import _others


def test_a_job_tries_the_models_that_are_trained_after_it(digits: Recipe) -> None:
    assert list(_others(digits, "teacher")) == ["student.model"]
    assert list(_others(digits, "control")) == ["teacher.model"]
    assert _others(digits, "distill") == {}
