"""The names in a pretrained student's training settings, checked against its configuration alone."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from transformers import ViTConfig

from tests.unit.steps.champions import FACTS, described
from understudy.errors import InputError
from understudy.models import pretrained_files
from understudy.models.hub import Unreachable
from understudy.recipe import Recipe
from understudy.steps import naming
from understudy.steps.naming import check_student_names
from understudy.steps.step import Work
from understudy.store import Store

LORA = "student.train.lora={rank: 2, alpha: 4, modules: [%s]}"


@pytest.fixture
def work(tmp_path: Path, digits: Recipe, change: Callable[..., Recipe]) -> Callable[..., Work]:
    """A step with the digits, and a student of which there is a configuration and no weights."""
    folder, store = tmp_path / "source", Store(tmp_path / "store")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    ViTConfig(**sizes, image_size=8, patch_size=4, num_channels=1).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text('{"image_mean": [0.5], "image_std": [0.5]}')
    (folder / "model.safetensors").touch()
    examples = store.objects.path(described(store, tmp_path / "examples", {**FACTS, "mean": [0.5], "std": [0.5]}))

    def work(*changes: str, model: str = f"{{pretrained: {folder}}}") -> Work:
        recipe = change(digits, f"student.model={model}", *changes)
        return cast(Work, SimpleNamespace(recipe=recipe, input=lambda _: examples))

    return work


def check(context: Work) -> None:
    check_student_names(context, context.input("examples"))


def test_names_of_what_it_has_are_right(work: Callable[..., Work]) -> None:
    check(work(LORA % "q_proj", "student.train.optimizer.no_decay=['*.bias']"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (LORA % "no_such_layer", r"^student\.train\.lora\.modules: no layer is called no_such_layer"),
        ("student.train.optimizer.no_decay=['*.bais']", r"^student\.train\.optimizer\.no_decay: \*\.bais names no"),
    ],
)
def test_names_of_nothing_are_refused(work: Callable[..., Work], setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(work(setting))


def test_names_of_an_objective_that_depends_on_the_teachers_shapes_are_left_to_jobs(work: Callable[..., Work]) -> None:
    compared = "student.distill=[{type: hidden_states}]"
    check(work(compared, "student.train.optimizer.no_decay=['objective.projections.*']"))
    with pytest.raises(InputError, match=r"^student\.train\.lora\.modules: no layer is called no_such_layer"):
        check(work(compared, LORA % "no_such_layer"))


def test_code_of_others_is_left_to_jobs(work: Callable[..., Work], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "expected_description", lambda *_: pytest.fail("a configuration was read"))
    check(work("student.model.trust_remote_code=true", LORA % "no_such_layer"))
    check(work())


def test_a_hub_that_is_away_is_no_mistake_of_the_recipe(
    work: Callable[..., Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unreachable("the hub is away")

    monkeypatch.setattr(pretrained_files, "hub_file", away)
    check(work(LORA % "no_such_layer", model=f"{{pretrained: a/b, revision: {'a' * 40}}}"))
