"""Scores on lm-eval's tasks: their names as metrics, and as rows of a table."""

import re
from typing import Any

import pytest

from understudy.evaluate.benchmark_scores import Benchmarks, figures, rows


@pytest.fixture
def benchmarks() -> Benchmarks:
    def score(value: float | None, filter_name: str = "none") -> Any:
        return {"metric": "acc", "filter": filter_name, "value": value, "stderr": 0.25 if value else None}

    return {
        "lm_eval": "0.4.13",
        "chat_template": False,
        "tasks": {"colours": {"examples": 4, "num_fewshot": 2, "higher_is_better": {"acc": True}}},
        "models": {
            "teacher": {"digest": "7", "tasks": {"colours": [score(0.75), score(0.5, "strict-match")]}},
            "student": {"digest": "5", "tasks": {"colours": [score(None), score(0.25, "strict-match")]}},
        },
    }


def test_a_score_is_a_metric_that_mlflow_accepts(benchmarks: Benchmarks) -> None:
    teacher = figures(benchmarks["models"]["teacher"])
    assert teacher == {
        "lm_eval.colours.acc": 0.75,
        "lm_eval.colours.acc_stderr": 0.25,
        "lm_eval.colours.acc.strict-match": 0.5,
        "lm_eval.colours.acc.strict-match_stderr": 0.25,
    }
    assert all(re.fullmatch(r"[\w./: -]+", name) for name in teacher)


def test_what_was_not_measured_is_no_metric(benchmarks: Benchmarks) -> None:
    student = figures(benchmarks["models"]["student"])
    assert set(student) == {"lm_eval.colours.acc.strict-match", "lm_eval.colours.acc.strict-match_stderr"}


def test_a_table_has_a_row_for_each_metric_and_filter(benchmarks: Benchmarks) -> None:
    table = list(rows(benchmarks, ["student", "teacher"]))
    assert [(task, metric, higher) for task, metric, higher, _ in table] == [
        ("colours", "acc", True),
        ("colours", "acc.strict-match", True),
    ]
    assert [[score["value"] for score in scores] for *_, scores in table] == [[None, 0.75], [0.25, 0.5]]
