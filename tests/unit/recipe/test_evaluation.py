"""Which metrics a recipe measures, and which ones its gate may compare, if answers are generated or not."""

from pathlib import Path

import pytest

from tests import ROOT
from understudy.errors import InputError
from understudy.recipe import Recipe
from understudy.recipe.evaluation import GENERATED
from understudy.recipe.file import completed, load

CHAT, DIGITS = ROOT / "recipes" / "chat.yaml", ROOT / "recipes" / "digits.yaml"


def chat(*overrides: str) -> Recipe:
    return load(CHAT, overrides=list(overrides))


def test_answers_are_measured_unless_none_are_generated() -> None:
    assert set(chat().metrics) >= GENERATED
    assert not GENERATED.intersection(chat("evaluate.generation.examples=0").metrics)


def test_a_complete_recipe_has_the_limits_if_the_task_has_answers() -> None:
    shown = completed(chat()).evaluate.generation
    assert shown is not None
    assert (shown.examples, shown.max_new_tokens) == (256, 128)
    assert completed(load(DIGITS)).evaluate.generation is None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["gate.metric=agreement"],
            "gate.metric: every teacher agrees with itself, so no student could",
        ),
        (
            ["gate.metric=rouge_l", "evaluate.generation.examples=0"],
            "gate.metric: rouge_l needs answers; give evaluate.generation.examples more than 0, or remove it",
        ),
        (
            ["evaluate.metrics=[nll, chrf]", "evaluate.generation.examples=0"],
            r"evaluate.metrics\[1\]: chrf needs answers; give evaluate.generation.examples more than 0, or remove it",
        ),
        (["gate.metric=f1", "gate.minimum=50"], r"gate.minimum: 50 is more than 1 \(100 %\); of f1, 90 % is 0.9"),
        (["evaluate.generation.max_new_tokens=0"], "evaluate.generation.max_new_tokens: must be greater than 0, got 0"),
    ],
)
def test_a_metric_that_cannot_be_compared_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        chat(*overrides)


def test_a_task_without_answers_has_no_limits() -> None:
    with pytest.raises(InputError, match="generation: does not apply to the task image-classification; remove it"):
        load(DIGITS, overrides=["evaluate.generation.examples=3"])


def test_a_metric_of_answers_may_decide() -> None:
    assert chat("gate.metric=rouge_l", "gate.minimum=0.2").gate_metric == "rouge_l"


def test_tasks_of_lm_eval_begin_at_the_recipes_folder(tmp_path: Path) -> None:
    text = CHAT.read_text() + "evaluate: {lm_eval: {tasks: [a], include: tasks}}\n"
    (tmp_path / "r.yaml").write_text(text)
    section = load(tmp_path / "r.yaml").evaluate.lm_eval
    assert section is not None
    assert section.include == str(tmp_path / "tasks")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("evaluate.lm_eval={tasks: [], include: x}", "evaluate.lm_eval.tasks: "),
        ("evaluate.lm_eval={tasks: ['a b'], include: x}", r"evaluate.lm_eval.tasks\[0\]: "),
        ("evaluate.lm_eval={tasks: [a]}", "evaluate.lm_eval.include: "),
        ("evaluate.lm_eval={tasks: [a], include: x, num_fewshot: -1}", "evaluate.lm_eval.num_fewshot: "),
        ("evaluate.lm_eval={tasks: [a], include: x, limit: 0}", "evaluate.lm_eval.limit: "),
    ],
)
def test_impossible_tasks_of_lm_eval_are_refused(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        chat(setting)


def test_tasks_of_lm_eval_are_for_whole_language_models() -> None:
    tasks = "evaluate.lm_eval={tasks: [a], include: x}"
    with pytest.raises(InputError, match="lm_eval: does not apply to the task image-classification; remove it"):
        load(DIGITS, overrides=[tasks])
    shards = ["evaluate.strategy=fsdp", "resources.evaluate={processes: 2}"]
    with pytest.raises(
        InputError, match=r"evaluate\.lm_eval: takes whole models in one process; set evaluate.strategy"
    ):
        chat(tasks, *shards)
    assert chat(*shards).evaluate.lm_eval is None
