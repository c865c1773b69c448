"""Paired bootstrap of models on common examples: values, differences and their intervals.

The test set is resampled with replacement (Efron & Tibshirani 1993, chapters 13 and 16). Every resample has the same
examples for all models, which makes the comparison paired and its interval narrow (Koehn 2004). As metrics are
functions of sums over examples, a resample is a row of counts, and all resamples' sums are one matrix product. So are
the sums of all products of two columns, from which every standard error is computed (intervals.py).

Examples (images, documents) are resampled; tokens of one document are not independent and stay together. Calibration
error is a sum of absolute values and therefore biased upwards, once more in every resample. No interval with nominal
coverage was available for it: the one here is for the report, and the gate does not decide by it.

Metrics of answers, such as F1, are computed from the examples of each resample. Their interval is the wider of the
percentiles and of Student's t with the resamples' standard error, which is widened as Wilson's score interval is: where
two models agree on all examples, no resample shows a difference, and the rarest label may hide one.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.answer_scores import Unmeasured, as_accuracy
from understudy.evaluate.intervals import (
    FloatArray,
    Interval,
    Moments,
    Ratio,
    fieller,
    least_examples,
    least_score,
    paired_score,
    percentiles,
    ratio_interval,
    smallest_detectable,
    student_t,
    wilson,
)
from understudy.evaluate.metrics import (
    METRICS,
    TARGETS,
    Metric,
    collected,
    columns,
    measured,
    table_metric,
)
from understudy.evaluate.resampling import RESAMPLES, SEED, resampled_sums, resampled_values
from understudy.recipe import MetricName

TOTALS = 4  # columns before the calibration gaps: nll, right answers, predictions, bytes


@dataclass(frozen=True)
class Difference:
    """The difference of two models, model - other; a share of the other's value for relative metrics.

    smallest: the smallest true difference that these examples could have shown. few: the reason why they are too few to
    decide, if they are.
    """

    observed: float
    low: float
    high: float
    smallest: float
    few: str = ""


class Bootstrap:
    """The sums of all resamples, for several models.

    Unusable results of a model are an error only when they are needed: the methods then raise Unmeasured.
    """

    def __init__(
        self, per_example: Mapping[str, Any], roles: Iterable[str], resamples: int = RESAMPLES, seed: int = SEED
    ) -> None:
        self._tables: dict[str, FloatArray] = {}
        self.unusable: dict[str, str] = {}
        roles = tuple(roles)
        for role in roles:
            try:
                self._tables[role] = columns(per_example, role)
            except Unmeasured as error:
                self.unusable[role] = str(error)
        self.examples = max((len(table) for table in self._tables.values()), default=0)
        if self.examples < 2:
            reason = f"{self.examples} test examples are too few to compare anything"
            self.unusable |= dict.fromkeys(self._tables, reason)
            self._tables = {}
        self._draws = resamples, seed
        self._per_example, self._roles = per_example, roles
        self._of_scores: dict[MetricName, Bootstrap] = {}
        self._scored: dict[tuple[MetricName, str], FloatArray] = {}

    def of(self, name: MetricName, *roles: str) -> tuple["Bootstrap", MetricName]:
        """The resamples that a metric of some models is computed from, and its name there.

        Raises:
            Unmeasured: it is a metric of generated answers, and a model's were not measured.
        """
        if not METRICS[name].from_texts:
            return self, name
        scores = as_accuracy(name, self._per_example, roles)
        if name not in self._of_scores:
            self._of_scores[name] = Bootstrap(scores, self._roles, *self._draws)
        return self._of_scores[name], "accuracy"

    @cached_property
    def _columns(self) -> FloatArray:
        """Predictions and bytes, then nll and right answers of each model: (N, K).

        An infinite loss is NaN here: it has no interval, and numpy warns of its products.
        """
        tables = list(self._tables.values())
        columns = np.hstack([tables[0][:, 2:TOTALS], *(table[:, :2] for table in tables)])
        return np.where(np.isinf(columns), np.nan, columns)

    @cached_property
    def _moments(self) -> Moments:
        """The sums of all columns, and of all products of two, over every resample."""
        size = self._columns.shape[1]
        rows, columns = np.triu_indices(size)
        products = self._columns[:, rows] * self._columns[:, columns]
        sums = resampled_sums(np.hstack([self._columns, products]), *self._draws)
        second = np.empty((len(sums), size, size))
        second[:, rows, columns] = second[:, columns, rows] = sums[:, size:]
        return Moments(sums[:, :size], second)

    @cached_property
    def _calibration_errors(self) -> dict[str, FloatArray]:
        """Each model's calibration error in every resample."""
        tables = self._tables.values()
        sums = resampled_sums(np.hstack([self._columns[:, :1], *(table[:, TOTALS:] for table in tables)]), *self._draws)
        gaps = np.split(sums[:, 1:], len(tables), axis=1)
        return {role: np.abs(part).sum(axis=1) / sums[:, 0] for role, part in zip(self._tables, gaps, strict=True)}

    def value(self, name: MetricName, role: str) -> float:
        """The metric on the test set itself.

        Raises:
            Unmeasured: it is not finite, or the model's results are unusable.
        """
        if METRICS[name].from_texts:
            scores, accuracy = self.of(name, role)
            return scores.value(accuracy, role)
        if role not in self._tables:
            raise Unmeasured(self.unusable.get(role, f"there are no per-example results of the {role}"))
        if METRICS[name].from_answers:
            return measured(name, self._per_example, role)
        result = table_metric(name, self._tables[role])
        if not np.isfinite(result):
            is_infinite = np.isposinf(self._tables[role][:, 0].sum())
            reason = "is infinite: a target has a probability of 0" if is_infinite else "was not measured"
            raise Unmeasured(f"the {role}'s {METRICS[name].title} {reason}")
        return result

    def interval(self, name: MetricName, role: str, confidence: float) -> Interval:
        """The interval of one model's metric."""
        if METRICS[name].from_texts:
            scores, accuracy = self.of(name, role)
            return scores.interval(accuracy, role, confidence)
        value, metric = self.value(name, role), METRICS[name]
        if metric.from_answers:
            low, high = self._widest(metric, value, self._resampled(name, role), confidence)
            return max(low, metric.values[0]), min(high, metric.values[1])
        if metric.ratio is None:
            return percentiles(self._calibration_errors[role], confidence)
        if name == "accuracy" and self._is_binary(role):
            return wilson(value * self.examples, self.examples, confidence)
        numerator, denominator = (self._column(part, role) for part in metric.ratio)
        _, ends, _ = self._ratio(Ratio(numerator, denominator, metric.shown), confidence)
        return ends

    def difference(self, name: MetricName, role: str, other: str, confidence: float) -> Difference:
        """The paired difference role - other with its confidence interval."""
        if METRICS[name].from_texts:
            scores, accuracy = self.of(name, role, other)
            return scores.difference(accuracy, role, other, confidence)
        value, other_value, metric = self.value(name, role), self.value(name, other), METRICS[name]
        if metric.relative and other_value == 0:
            raise Unmeasured(f"the {other}'s {metric.title} is 0: no share of it can be taken")
        if metric.from_answers:
            differences = self._resampled(name, role) - self._resampled(name, other)
            ends = self._widest(metric, value - other_value, differences, confidence)
            smallest = max(
                smallest_detectable(float(differences.std(ddof=1)), confidence), self._unseen(metric, confidence)
            )
            few = self.too_few(name, ends, confidence)
            return Difference(value - other_value, *ends, smallest, few)
        if metric.ratio is None:
            differences = self._calibration_errors[role] - self._calibration_errors[other]
            smallest = smallest_detectable(float(differences.std(ddof=1)), confidence)
            return Difference(value - other_value, *percentiles(differences, confidence), smallest)
        if name == "accuracy" and self._is_binary(role) and self._is_binary(other):
            return self._paired_accuracy(role, other, confidence)
        observed, ends, error = self._ratio(self._compared(metric, role, other), confidence)
        few = self.too_few(name, ends, confidence)
        return Difference(observed, *ends, smallest_detectable(error, confidence), few)

    def share(
        self, role: str, start: str, end: str, name: MetricName, confidence: float
    ) -> tuple[float, Interval] | None:
        """The position of a third model between two others, 0 at the start and 1 at the end, with its interval.

        None if start and end do not differ significantly.
        """
        if METRICS[name].from_texts:
            scores, accuracy = self.of(name, role, start, end)
            return scores.share(role, start, end, accuracy, confidence)
        part, _ = METRICS[name].ratio or ("", "")
        for model in (role, start, end):
            self.value(name, model)
        if not part:
            raise Unmeasured(f"the {METRICS[name].title} is no ratio of sums")
        column = ("nll", "correct").index(part)
        numerator, denominator = (
            self._tables[model][:, column] - self._tables[start][:, column] for model in (role, end)
        )
        interval = fieller(numerator, denominator, confidence)
        return (float(numerator.sum() / denominator.sum()), interval) if interval else None

    def _resampled(self, name: MetricName, role: str) -> FloatArray:
        """The values of a metric of answers in every resample, (R,)."""
        if (name, role) not in self._scored:
            function = METRICS[name].from_answers
            assert function is not None
            self._scored[name, role] = resampled_values(function, collected(self._per_example, role), *self._draws)
        return self._scored[name, role]

    def _widest(self, metric: Metric, value: float, resampled: FloatArray, confidence: float) -> Interval:
        """The interval of a metric of answers, or of a difference of two."""
        low, high = percentiles(resampled, confidence)
        unseen = self._unseen(metric, confidence) / 2
        half = unseen + math.hypot(student_t(self.examples - 1, confidence) * float(resampled.std(ddof=1)), unseen)
        return min(low, value - half), max(high, value + half)

    def _unseen(self, metric: Metric, confidence: float) -> float:
        """The largest difference of two models that agree on all examples: one that only the rarest label shows."""
        lowest, highest = metric.values
        return (highest - lowest) / len(self._label_counts) * least_score(int(self._label_counts.min()), confidence)

    @cached_property
    def _label_counts(self) -> NDArray[np.intp]:
        """The number of examples of each label that has any."""
        return np.unique(self._per_example[TARGETS], return_counts=True)[1]

    def _paired_accuracy(self, role: str, other: str, confidence: float) -> Difference:
        """The difference in accuracy of two models on the same examples, with the score interval of a pair."""
        right = self._tables[role][:, 1] - self._tables[other][:, 1]
        wins, losses = int(np.sum(right > 0)), int(np.sum(right < 0))
        error = float(np.std(right, ddof=1)) / math.sqrt(self.examples)
        smallest = max(smallest_detectable(error, confidence), least_score(self.examples, confidence))
        ends = paired_score(wins, losses, self.examples, confidence)
        return Difference(float(right.mean()), *ends, smallest)

    def _compared(self, metric: Metric, role: str, other: str) -> Ratio:
        """The difference of two models as one ratio of sums, so that it is tested as one (Fieller 1954)."""
        assert metric.ratio is not None
        part, unit = metric.ratio
        numerator = self._column(part, role) - self._column(part, other)
        if metric.shown is np.exp:  # a quotient of exponentials is the exponential of the difference
            return Ratio(numerator, self._column(unit, other), np.expm1)
        return Ratio(numerator, self._column(part if metric.relative else unit, other), np.asarray)

    def _column(self, part: str, role: str) -> FloatArray:
        index = {"tokens": 0, "bytes": 1}.get(part)
        if index is None:
            index = 2 + 2 * list(self._tables).index(role) + ("nll", "correct").index(part)
        column = np.zeros(self._columns.shape[1])
        column[index] = 1
        return column

    def _ratio(self, ratio: Ratio, confidence: float) -> tuple[float, Interval, float]:
        return ratio_interval(ratio, self._columns, self._columns[:, 0], self._moments, confidence)

    def too_few(self, name: MetricName, ends: Interval, confidence: float) -> str:
        """The reason why the examples are too few to decide, whatever their interval; empty if they suffice.

        A metric of answers may be decided by the examples of the rarest label alone.
        """
        least, count, suffix = least_examples(confidence), self.examples, ""
        if METRICS[name].from_answers:
            count, suffix = int(self._label_counts.min()), " of the rarest label"
        if count < least:
            return (
                f"{count} test examples{suffix} are too few to tell: it takes {least} to see a loss in a tenth of them"
            )
        if not np.isfinite(ends).all():
            return "too few test examples carry the difference to tell how large it is"
        return ""

    def _is_binary(self, role: str) -> bool:
        """Whether every example is one answer, right or wrong."""
        correct, tokens = self._tables[role][:, 1], self._tables[role][:, 2]
        return bool((tokens == 1).all() and np.isin(correct, (0, 1)).all())
