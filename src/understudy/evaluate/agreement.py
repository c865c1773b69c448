"""The agreement of answers and labels: metrics that are no functions of sums over examples."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Scores = Mapping[str, NDArray[np.int64]]
"""Scores of some examples: `target` and `answer`, the indices of labels, (n,) each."""


def macro_f1(scores: Scores) -> float:
    """The unweighted mean over labels of F1, the harmonic mean of precision and recall (Opitz and Burst 2019, eq. 2).

    Labels that are neither a target nor an answer do not count.
    """
    right, answered, present = _counts(scores)
    used = answered + present > 0
    return float(np.mean(2 * right[used] / (answered + present)[used]))


def balanced_accuracy(scores: Scores) -> float:
    """The unweighted mean over labels of recall, the share of a label's examples that are answered rightly.

    Labels that are not a target do not count (Brodersen et al. 2010; scikit-learn's balanced_accuracy_score).
    """
    right, _, present = _counts(scores)
    used = present > 0
    return float(np.mean(right[used] / present[used]))


def matthews(scores: Scores) -> float:
    """The correlation of answers and targets (Matthews 1975), for several labels Gorodkin's R_K (2004, equation 8).

    It is 0 for answers that do not vary.
    """
    right, answered, present = _counts(scores)
    count = len(scores["target"])
    covariance = count * right.sum() - answered @ present
    variances = (count**2 - answered @ answered) * (count**2 - present @ present)
    return float(covariance / math.sqrt(variances)) if variances else 0.0


def _counts(scores: Scores) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The numbers of right answers, of answers and of targets, by label."""
    target, answer = scores["target"], scores["answer"]
    labels = 1 + max(target.max(initial=-1), answer.max(initial=-1))
    groups = (target[target == answer], answer, target)
    right, answered, present = (np.bincount(group, minlength=labels).astype(np.float64) for group in groups)
    return right, answered, present
