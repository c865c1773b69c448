"""Validation of a benchmark's result, whose process runs the models' own code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from understudy.errors import UnderstudyError
from understudy.evaluate.benchmark_scores import CONTENTS
from understudy.recipe import Recipe
from understudy.steps.scores import LARGEST, checked_scores

Change = Callable[..., Recipe]
DIGESTS = {"teacher": "7" * 64, "student": "5" * 64}


@pytest.fixture
def recipe(pydoc: Recipe, change: Change) -> Recipe:
    return change(pydoc, "evaluate.lm_eval={tasks: [colours], include: /tasks}")


def scores() -> dict[str, Any]:
    def model(digest: str) -> dict[str, Any]:
        return {
            "digest": digest,
            "tasks": {"colours": [{"metric": "acc", "filter": "none", "value": 0.5, "stderr": None}]},
        }

    return {
        "lm_eval": "0.4.13",
        "chat_template": False,
        "tasks": {"colours": {"examples": 4, "num_fewshot": 0, "higher_is_better": {"acc": True}}},
        "models": {role: model(digest) for role, digest in DIGESTS.items()},
    }


def check(folder: Path, recipe: Recipe, content: str) -> Any:
    (folder / CONTENTS).write_text(content)
    return checked_scores(folder / CONTENTS, recipe, {role: folder / digest for role, digest in DIGESTS.items()})


def test_scores_of_these_models_on_these_tasks_are_accepted(tmp_path: Path, recipe: Recipe) -> None:
    assert check(tmp_path, recipe, json.dumps(scores())) == scores()


def put(path: str, value: Any) -> str:
    changed: Any = scores()
    *keys, last = path.split("/")
    section = changed
    for key in keys:
        section = section[int(key) if key.isdigit() else key]
    section[int(last) if last.isdigit() else last] = value
    return json.dumps(changed)


STUDENT = "models/student/tasks/colours"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "should be a"),
        (put("x", 1), "Extra inputs are not permitted"),
        (put(f"{STUDENT}/0/value", "0.5"), "should be a valid number"),
        (put(f"{STUDENT}/0/value", float("nan")), "not finite"),
        (put(f"{STUDENT}/0/stderr", float("inf")), "not finite"),
        (put(f"{STUDENT}/0/metric", "[link](x)"), "other metrics for some models"),
        (put(STUDENT, []), "other metrics for some models"),
        (put("models/student/tasks", {}), "has other tasks"),
        (put("models/student/digest", "6" * 64), "scores of other models"),
        (put("models/control", scores()["models"]["student"]), "scores of other models"),
        (put("tasks/colours/examples", 0), "impossible number of documents"),
        (put("tasks/colours/higher_is_better", {}), "does not say whether higher is better"),
        (put("lm_eval", "<b>"), "another version of lm-eval"),
        (put("chat_template", value=True), "another version of lm-eval, or other prompts"),
        (json.dumps(scores()).replace('"acc"', '"<b>"'), "a metric without a proper name"),
    ],
)
def test_anything_else_is_discarded(tmp_path: Path, recipe: Recipe, content: str, reason: str) -> None:
    with pytest.raises(UnderstudyError, match=reason):
        check(tmp_path, recipe, content)


def test_a_missing_or_huge_file_is_discarded(tmp_path: Path, recipe: Recipe) -> None:
    with pytest.raises(UnderstudyError, match="is missing"):
        checked_scores(tmp_path / CONTENTS, recipe, {})
    with pytest.raises(UnderstudyError, match="bytes"):
        check(tmp_path, recipe, " " * (LARGEST + 1))


def test_more_documents_than_the_limit_are_refused(tmp_path: Path, recipe: Recipe, change: Change) -> None:
    with pytest.raises(UnderstudyError, match="impossible number of documents"):
        check(tmp_path, change(recipe, "evaluate.lm_eval.limit=3"), json.dumps(scores()))
