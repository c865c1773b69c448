import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score

from understudy.evaluate.agreement import balanced_accuracy, macro_f1, matthews

answers = st.integers(1, 4).flatmap(
    lambda labels: st.lists(st.tuples(*2 * [st.integers(0, labels)]), min_size=2, max_size=60)
)


def scores_of(pairs):
    target, answer = np.array(pairs).T
    return {"target": target, "answer": answer}


@given(answers)
def test_macro_f1_is_the_mean_over_labels_of_the_harmonic_mean_of_precision_and_recall(pairs):
    f1_by_label = []
    for label in {label for pair in pairs for label in pair}:
        right = sum(target == answer == label for target, answer in pairs)
        precision = right / max(1, sum(answer == label for _, answer in pairs))
        recall = right / max(1, sum(target == label for target, _ in pairs))
        f1_by_label.append(0.0 if right == 0 else 2 / (1 / precision + 1 / recall))
    assert macro_f1(scores_of(pairs)) == pytest.approx(sum(f1_by_label) / len(f1_by_label))


@given(answers)
@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
def test_balanced_accuracy_is_that_of_scikit_learn(pairs):
    assert balanced_accuracy(scores_of(pairs)) == pytest.approx(balanced_accuracy_score(*np.array(pairs).T))


@given(answers)
def test_matthews_is_the_correlation_of_indicators_of_the_labels(pairs):
    """Gorodkin's definition: the covariance of two tables of indicators, summed over labels, over their deviations."""
    target, answer = (np.eye(5)[[pair[index] for pair in pairs]] for index in (0, 1))
    target, answer = (table - table.mean(axis=0) for table in (target, answer))
    scale = math.sqrt((target * target).sum() * (answer * answer).sum())
    expected = (target * answer).sum() / scale if scale > 1e-12 else 0.0
    assert matthews(scores_of(pairs)) == pytest.approx(expected, abs=1e-9)


def test_matthews_of_two_labels_is_the_correlation_of_two_rows_of_numbers():
    scores = scores_of([(0, 0), (1, 0), (1, 1), (1, 1), (0, 1), (0, 0), (1, 1)])
    assert matthews(scores) == pytest.approx(np.corrcoef(scores["target"], scores["answer"])[0, 1])
