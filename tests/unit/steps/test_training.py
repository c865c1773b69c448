from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from understudy.recipe import Recipe
from understudy.steps import steps_of, training
from understudy.steps.step import Work


def test_what_a_pretrained_student_names_is_looked_for_before_a_teacher_is_trained(
    monkeypatch: pytest.MonkeyPatch, digits: Recipe
) -> None:
    done: list[str] = []
    monkeypatch.setattr(training, "check_student_names", lambda *_: done.append("names"))
    monkeypatch.setattr(training, "fetched_model", lambda *_: None)
    monkeypatch.setattr(training, "training_spec", lambda *_: None)
    monkeypatch.setattr(training, "train", lambda *_: done.append("train"))
    steps_of(digits)["teacher"].work(cast(Work, SimpleNamespace(recipe=digits, input=lambda role: None)))
    assert done == ["names", "train"]


def test_a_teacher_that_is_only_fetched_is_the_result_without_a_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, digits: Recipe, change: Callable[..., Recipe]
) -> None:
    fetched, staged = tmp_path / "initial", tmp_path / "staged"
    for folder in (fetched, staged):
        folder.mkdir()
    (fetched / "model.safetensors").write_bytes(b"weights")
    heads: list[str] = []
    monkeypatch.setattr(training, "fetched_model", lambda *arguments: heads.append(arguments[-2]) or fetched)
    monkeypatch.setattr(training, "train", lambda *_: pytest.fail("a job was run"))
    recipe = change(digits, f"teacher={{model: {{pretrained: {fetched}}}}}")
    steps_of(recipe)["teacher"].work(
        cast(Work, SimpleNamespace(recipe=recipe, staged=staged, input=lambda role: tmp_path))
    )
    assert (staged / "model.safetensors").read_bytes() == b"weights"
    assert heads == ["kept"]


def test_a_training_from_layers_of_a_teacher_has_no_model_of_an_earlier_stage(
    monkeypatch: pytest.MonkeyPatch, digits: Recipe, change: Callable[..., Recipe]
) -> None:
    initial: list[object] = []
    monkeypatch.setattr(training, "training_spec", lambda work, node, model: initial.append(model))
    monkeypatch.setattr(training, "train", lambda *_: None)
    recipe = change(digits, "student.start={}")
    work = cast(Work, SimpleNamespace(recipe=recipe, input=Path, facts={}))
    steps_of(recipe)["control"].work(work)
    assert initial == [None]
