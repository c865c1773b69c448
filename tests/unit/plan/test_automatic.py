"""strategy: auto."""

from typing import Any

import pytest

from tests.unit.plan.shrunk import SIZES, overrides
from understudy.errors import InputError
from understudy.plan import automatic
from understudy.plan.hardware import Hardware
from understudy.recipe import Degrees, Recipe
from understudy.recipe.file import load

HERE = "recipes/llm.yaml"


def recipe(*more: str) -> Recipe:
    from pathlib import Path

    settings = [text for text in overrides(SIZES) if text != "--set"]
    return load(Path(HERE), [*settings, *more])


AUTO = "student.train.strategy=auto"


def test_auto_is_what_the_plan_ranks_first() -> None:
    messages: list[str] = []
    planned = automatic.decided(recipe(AUTO, "resources.distill.device=cpu"), messages.append)
    assert isinstance(planned.student.train.strategy, Degrees)
    assert planned.student.train.strategy.world_size == 2
    assert planned.undecided == ()
    assert messages == [f"student.train.strategy: auto is {planned.student.train.strategy} on 1 x 2 CPU"]


def test_a_recipe_without_auto_stays_as_it_is() -> None:
    same = recipe()
    assert automatic.decided(same, pytest.fail) is same


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "resources.distill.hardware: strategy: auto needs the kind of hardware; give one of H200, H100"),
        (("resources.distill.hardware=B9",), "resources.distill.hardware: B9 is not in the table"),
    ],
)
def test_auto_has_to_know_the_hardware(more: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        automatic.decided(recipe(AUTO, *more), pytest.fail)


def test_where_nothing_fits_the_nearest_miss_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Hardware(memory=0.0001, tflops={"fp32": 1}, link=1, network=1, price=0)
    monkeypatch.setattr(automatic, "table", lambda: {"Tiny": tiny})
    with pytest.raises(InputError, match=r"train.strategy: nothing fits; the nearest: .* too many") as caught:
        automatic.decided(recipe(AUTO, "resources.distill.hardware=Tiny"), pytest.fail)
    assert "take more processes" in str(caught.value)


def test_where_no_degrees_make_sense_the_reasons_are_told() -> None:
    wrong: Any = (AUTO, "resources.distill.device=cpu", "student.train.batch_size=1", "resources.distill.processes=7")
    with pytest.raises(InputError, match="no degrees suit 1 x 7 processes: batch_size 1 does not divide"):
        automatic.decided(recipe(*wrong), pytest.fail)
