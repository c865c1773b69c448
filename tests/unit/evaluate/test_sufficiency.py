from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.evaluate.intervals import least_examples, paired_score, wilson
from understudy.evaluate.sufficiency import indistinct, least_answers, shortfalls, too_rare
from understudy.recipe import Gate
from understudy.recipe.tasks import load


def places(task: str, *arguments: Any) -> list[str]:
    return [".".join(path) for path, _ in shortfalls(load(task), *arguments)]


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("loss", [0.005, 0.02, 0.05, 0.3])
def test_the_least_number_is_where_the_gates_own_intervals_begin_to_reach(loss: float, confidence: float) -> None:
    least = least_answers(loss, confidence)
    assert paired_score(0, 0, least, confidence)[1] <= loss < paired_score(0, 0, least - 1, confidence)[1]
    assert wilson(least, least, confidence)[0] >= 1 - loss > wilson(least - 1, least - 1, confidence)[0]


def test_a_margin_of_nothing_asks_for_a_better_student_and_not_for_more_examples() -> None:
    assert places("image-classification", "accuracy", Gate(margin=0), 3) == []


@pytest.mark.parametrize(
    ("minimum", "examples", "refused"),
    [
        (0.99, 380, True),
        (0.99, 381, False),
        (1.0, 10**6, True),
        (0.5, least_examples(0.95) - 1, True),  # the gate tells nothing by so few, whatever their interval
        (0.5, least_examples(0.95), False),
        (0.0, least_examples(0.95) - 1, True),
        (0.0, 100, False),
    ],
)
def test_a_minimum_that_a_perfect_student_could_not_be_shown_to_reach_is_refused(
    minimum: float, examples: int, refused: bool
) -> None:
    gate = Gate(margin=0.5, minimum=minimum)
    assert (places("image-classification", "accuracy", gate, examples) == ["gate.minimum"]) is refused


def test_metrics_of_sums_need_as_many_examples_as_the_gate_does() -> None:
    least = least_examples(0.95)
    for task, metric in (("causal-lm", "bits_per_byte"), ("causal-lm", "accuracy"), ("image-classification", "nll")):
        assert places(task, metric, Gate(), least) == []
        assert places(task, metric, Gate(), least - 1) == ["data.test"]
    assert places("causal-lm", "bits_per_byte", Gate(minimum=0), 100) == ["gate.minimum"]


@pytest.mark.parametrize(
    ("task", "metric", "gate", "alternative"),
    [
        ("text-classification", "accuracy", Gate(margin=0.05), "or a larger gate.margin."),
        ("text-classification", "accuracy", Gate(margin=0.5, minimum=0.99), "or a lower gate.minimum."),
        ("text-classification", "nll", Gate(), "or compare another metric (gate.metric)."),
    ],
)
def test_more_of_too_few_records_to_test_on_is_not_advised(
    task: str, metric: Any, gate: Gate, alternative: str
) -> None:
    def message(examples: int, records: int | None) -> str:
        ((_, text),) = shortfalls(load(task), metric, gate, examples, records)
        return text

    share, more = "(a larger data.test, unless the source has its own test split)", "records. Give more data, "
    assert share in message(30, None)
    assert share in message(30, 10**6)
    assert message(30, 34).endswith(f"and the source has 34 {more}{alternative}")
    assert message(30, 34).startswith("30 test ")
    assert message(30, 30).startswith("all 30 ")
    assert share not in message(30, 30)


@given(
    disagreements=st.integers(0, 60),
    more=st.integers(0, 200),
    confidence=st.sampled_from([0.8, 0.9, 0.95, 0.99, 0.999]),
)
def test_a_difference_is_distinct_where_the_gates_interval_excludes_0(
    disagreements: int, more: int, confidence: float
) -> None:
    examples = max(disagreements + more, 1)
    assert (indistinct(disagreements, examples, confidence, "image") == "") == (
        paired_score(disagreements, 0, examples, confidence)[0] > 0
    )


def test_one_label_for_nearly_all_images_leaves_nothing_to_be_better_at() -> None:
    assert "it takes 4 or more of 100" in indistinct(3, 100, 0.95, "image")
    assert indistinct(4, 100, 0.95, "image") == ""
    assert "it takes more test images" in indistinct(0, 3, 0.95, "image")


def test_each_label_takes_as_many_examples_as_a_test_set() -> None:
    assert too_rare({"yes": 400, "no": 36}, 0.95, "text") == ""
    why = too_rare({"yes": 400, "no": 35, "perhaps": 90}, 0.95, "text")
    assert why.startswith("35 test texts have the label no, and a metric that this label may decide alone takes 36 or")
