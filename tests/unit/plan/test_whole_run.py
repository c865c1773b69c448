"""A run beside its trainings."""

import pytest

from tests.unit.plan.test_automatic import recipe
from understudy.plan.job import jobs
from understudy.plan.whole_run import WholeRun, whole_run


def beside(*more: str) -> WholeRun:
    found = recipe(*more)
    *_, distill = jobs(found)
    return whole_run(found, distill.planned)


@pytest.mark.parametrize("control", [True, False])
def test_models_stay_and_are_measured_together(control: bool) -> None:
    found = beside(f"student.control={str(control).lower()}")
    roles = ["teacher", "student", "control"][: 3 if control else 2]
    assert list(found.models) == roles
    assert found.models["teacher"] > found.models["student"] == found.models[roles[-1] if control else "student"]
    assert found.evaluation == sum(found.models.values())
    assert found.serving.weights == found.models["student"]


def test_an_evaluation_in_shards_has_a_share_in_each_process() -> None:
    shards = ("resources.evaluate.processes=4", "evaluate.strategy=fsdp")
    assert beside(*shards).evaluation == beside().evaluation // 4


def test_the_student_keeps_keys_of_sequences_as_long_as_the_recipe_s() -> None:
    """2 layers x 2 x 4 heads x 8 wide x 32 positions, as tests/unit/plan/shrunk.py has them."""
    assert beside().serving.cache == 4 * 2 * 2 * 4 * 8 * 32
    assert beside("data.text.sequence_length=16").serving.cache == 4 * 2 * 2 * 4 * 8 * 16
