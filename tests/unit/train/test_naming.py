"""The names of a model's parts in a training's settings, looked up in a model without memory before any training."""

from pathlib import Path
from typing import Any

import pytest

from tests.ranks.train import jobs
from tests.unit.jobs.specs import training as training_of
from tests.unit.plan.test_depth import llama
from understudy.data.loader import open_split
from understudy.errors import InputError
from understudy.models.build import empty_model
from understudy.objectives.objective import Context, objective
from understudy.recipe import Optimizer, Train
from understudy.recipe.objectives import without_teacher
from understudy.train.later_models import try_later_models
from understudy.train.naming import check_names


def train(**settings: Any) -> Train:
    return Train.model_validate({**jobs.TRAIN, **settings})


LABELS = objective(without_teacher(), Context(train(), seed=0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": {"no_decay": ["*.bais"]}}, r"here\.optimizer\.no_decay: \*\.bais names no parameter; "),
        ({"lora": {"modules": ["q_prj"]}}, r"here\.lora\.modules: no layer is called q_prj"),
    ],
)
def test_a_name_that_matches_nothing_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_names(
            empty_model(llama(2), "here"),
            LABELS,
            train(**settings),
            "here",
        )


def test_adapters_may_be_named_too() -> None:
    model = empty_model(llama(2), "here")
    settings = train(lora={"modules": ["q_proj"]}, optimizer={"no_decay": ["*q_proj.lora.?"]})
    check_names(model, LABELS, settings, "here")


def test_without_the_objective_only_layers_are_checked() -> None:
    check_names(empty_model(llama(2), "here"), None, train(optimizer={"no_decay": ["objective.scale"]}), "here")
    with pytest.raises(InputError, match=r"here\.lora\.modules: no layer is called q_prj"):
        check_names(empty_model(llama(2), "here"), None, train(lora={"modules": ["q_prj"]}), "here")


def test_names_in_the_students_training_are_looked_up_before_the_teacher_is_trained(
    tmp_path: Path, image_examples: Path
) -> None:
    others = {"student.model": jobs.VIT}

    def try_patterns(patterns: list[str]) -> None:
        later = {**jobs.TRAIN, "optimizer": Optimizer(no_decay=tuple(patterns)).model_dump()}
        objectives = [{"type": "logits"}]
        spec = jobs.spec(
            tmp_path, image_examples, jobs.VIT, later_models=others, student_train=later, student_objectives=objectives
        )
        try_later_models(training_of(spec), open_split(image_examples, "train"), "cpu")

    try_patterns(["*.bias"])
    with pytest.raises(InputError, match=r"^student\.train\.optimizer\.no_decay: \*\.bais names no parameter"):
        try_patterns(["*.bais"])
