"""A run beside its trainings."""

import pytest

from tests.unit.plan.test_automatic import recipe
from understudy.plan.run_requirements import RunRequirements, run_requirements


def requirements(*more: str) -> RunRequirements:
    return run_requirements(recipe(*more))


@pytest.mark.parametrize("control", [True, False])
def test_models_stay_and_are_measured_together(control: bool) -> None:
    needed = requirements(f"student.control={str(control).lower()}")
    roles = ["teacher", "student", "control"][: 3 if control else 2]
    assert list(needed.models) == roles
    assert needed.models["teacher"] > needed.models["student"] == needed.models[roles[-1] if control else "student"]
    assert needed.evaluation == sum(needed.models.values())
    assert needed.serving.weights == needed.models["student"]


def test_an_evaluation_in_shards_has_a_share_in_each_process() -> None:
    shards = ("resources.evaluate.processes=4", "evaluate.strategy=fsdp")
    assert requirements(*shards).evaluation == requirements().evaluation // 4


def test_the_student_keeps_keys_of_sequences_as_long_as_the_recipe_s() -> None:
    """2 layers x 2 x 4 heads x 8 wide x 32 positions, as tests/unit/plan/shrunk.py has them."""
    assert requirements().serving.cache == 4 * 2 * 2 * 4 * 8 * 32
    assert requirements("data.text.sequence_length=16").serving.cache == 4 * 2 * 2 * 4 * 8 * 16
