"""Metrics: one function each, from sums over examples, or from the examples' scores, to the metric's value.

Most metrics are functions of sums over examples. So the same function gives the value on the test set and, with the
sums of ten thousand resamples, its bootstrap distribution (statistics.py). All of these but the calibration error are
functions of one ratio of sums, for which there are intervals. Other metrics are any function of the scores of some
examples, and are computed from those of each resample. Metrics of generated answers are means of one score for each
answered example: accuracy, where answers are right to a degree. A value that was not measured is NaN in between and
None at the end; it never turns into a number.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.agreement import Scores, balanced_accuracy, macro_f1, matthews
from understudy.evaluate.answer_scores import Uncollected, Unmeasured, as_accuracy
from understudy.evaluate.contents import Bin
from understudy.evaluate.text_scores import chrf, exact_match, f1, rouge_l
from understudy.recipe import MetricName, TaskName
from understudy.recipe.tasks import load

FloatArray = NDArray[np.float64]
BINS = 15  # of confidence; the number that Guo et al. 2017 use
COLUMNS = 4 + BINS
TARGETS, ANSWER = "weights.target", "answer"
"""Arrays of per_example.npz with the indices of labels, the second one of each model."""


@dataclass(frozen=True)
class Sums:
    """Sums over examples for one model. Leading dimensions, if there are any, count resamples.

    nll: nats, (...). correct: right predictions, (...). tokens: predictions, (...). bytes: UTF-8 bytes, (...).
    gaps: right predictions minus confidence by bin of confidence, (..., BINS).
    """

    nll: FloatArray
    correct: FloatArray
    tokens: FloatArray
    bytes: FloatArray
    gaps: FloatArray

    @classmethod
    def unpack(cls, table: FloatArray) -> "Sums":
        """Name the columns of (..., COLUMNS), in the order of `columns`."""
        return cls(table[..., 0], table[..., 1], table[..., 2], table[..., 3], table[..., 4:])


def accuracy(sums: Sums) -> FloatArray:
    """Share of right predictions."""
    return sums.correct / sums.tokens


def nll(sums: Sums) -> FloatArray:
    """Mean negative log-likelihood per prediction, in nats."""
    return sums.nll / sums.tokens


def perplexity(sums: Sums) -> FloatArray:
    """Exponential of the mean negative log-likelihood per token."""
    return np.exp(nll(sums))


def bits_per_byte(sums: Sums) -> FloatArray:
    """Negative log-likelihood in bits per UTF-8 byte of text: comparable across tokenizers."""
    return sums.nll / (math.log(2) * sums.bytes)


def calibration_error(sums: Sums) -> FloatArray:
    """Expected calibration error over 15 equal bins of confidence (Guo et al. 2017, equation 3)."""
    distance: FloatArray = np.abs(sums.gaps).sum(axis=-1)
    return distance / sums.tokens


@dataclass(frozen=True)
class Metric:
    """The computation, comparison and format of a metric.

    relative: differences are shares of the other model's value, not absolute. style: a format specification. ratio:
    the two sums of which the metric is the quotient, up to a constant, and shown: a monotone function of that
    quotient. A metric of sums without a ratio has no interval for the gate. from_answers: a function of the scores of
    some examples, instead of sums; values: the range of its values. from_texts: the score, from 0 to 1, of a generated
    answer and a reference; the metric is its mean.
    """

    compute: Callable[[Sums], FloatArray] | None
    title: str
    style: str
    higher_is_better: bool = False
    relative: bool = True
    ratio: tuple[str, str] | None = None
    shown: Callable[[FloatArray], FloatArray] = np.asarray
    from_answers: Callable[[Scores], float] | None = None
    values: tuple[float, float] = (0.0, 1.0)
    from_texts: Callable[[str, str], float] | None = None

    @property
    def heading(self) -> str:
        """The title at the beginning of a sentence."""
        return self.title[0].upper() + self.title[1:]

    @property
    def is_decidable(self) -> bool:
        """Whether the gate may decide by its interval."""
        return bool(self.ratio or self.from_answers or self.from_texts)

    def show(self, value: float | None) -> str:
        """The formatted value."""
        return "not measured" if value is None else format(value, self.style).replace("%", " %")

    def show_difference(self, value: float) -> str:
        """A formatted difference of `statistics.Bootstrap.difference`, always with its sign."""
        if self.relative:
            shown = f"{100 * value:+.2f} %"
        else:
            shown = f"{100 * value:+.2f} points" if self.style.endswith("%") else f"{value:+.4f}"
        if not any(digit in shown for digit in "123456789"):
            shown = shown.replace("-", "+")  # a difference that rounds to 0 has no direction
        return shown.replace("-", "−")


def three_digits(value: float) -> str:
    """A value with three significant digits, without an exponent; a whole number from 1,000 on."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    return np.format_float_positional(value, precision=3, unique=False, fractional=False, trim="-")


def _bits(nats: FloatArray) -> FloatArray:
    return np.asarray(nats / math.log(2))


def _generated(title: str, score: Callable[[str, str], float]) -> Metric:
    return Metric(None, title, ".2%", higher_is_better=True, relative=False, from_texts=score)


METRICS: dict[MetricName, Metric] = {
    "accuracy": Metric(accuracy, "accuracy", ".2%", higher_is_better=True, relative=False, ratio=("correct", "tokens")),
    "nll": Metric(nll, "negative log-likelihood", ".4f", ratio=("nll", "tokens")),
    "perplexity": Metric(perplexity, "perplexity", ".4g", ratio=("nll", "tokens"), shown=np.exp),
    "bits_per_byte": Metric(bits_per_byte, "bits per byte", ".4f", ratio=("nll", "bytes"), shown=_bits),
    "calibration_error": Metric(calibration_error, "calibration error", ".4f", relative=False),
    "macro_f1": Metric(None, "macro F1", ".4f", higher_is_better=True, relative=False, from_answers=macro_f1),
    "balanced_accuracy": Metric(
        None, "balanced accuracy", ".2%", higher_is_better=True, relative=False, from_answers=balanced_accuracy
    ),
    "matthews": Metric(
        None,
        "Matthews correlation",
        ".4f",
        higher_is_better=True,
        relative=False,
        from_answers=matthews,
        values=(-1.0, 1.0),
    ),
    "exact_match": _generated("exact match", exact_match),
    "f1": _generated("F1 of answers", f1),
    "rouge_l": _generated("ROUGE-L", rouge_l),
    "chrf": _generated("chrF", chrf),
    "agreement": _generated("agreement with the teacher", f1),
}


def collects_answers(task: TaskName) -> bool:
    """Whether a metric of the task is a function of each example's answer, which is then a result of its models."""
    return any(METRICS[name].from_answers for name in load(task).METRICS)


def slice_metric(name: MetricName) -> MetricName:
    """The metric of slices. Metrics of answers compare labels, of which a slice has one; or few examples have one."""
    if METRICS[name].from_texts:
        return "nll"
    return "accuracy" if METRICS[name].from_answers else name


def table_metric(name: MetricName, table: FloatArray) -> float:
    """A metric of sums over rows of `columns`; NaN or infinite if it was not measured."""
    function = METRICS[name].compute
    assert function is not None
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return float(function(Sums.unpack(table.sum(axis=0))))


def measured(
    name: MetricName, per_example: Mapping[str, Any], role: str, rows: NDArray[np.intp] | None = None
) -> float:
    """The metric of one model on the test set, or on some rows of it; NaN or infinite if it was not measured.

    Raises:
        Unmeasured: the model has no results, or results of other examples.
    """
    metric = METRICS[name]
    if metric.from_texts:
        return measured("accuracy", as_accuracy(name, per_example, (role,)), role, rows)
    table = columns(per_example, role)
    if metric.from_answers is None:
        return table_metric(name, table if rows is None else table[rows])
    scores = collected(per_example, role)
    return metric.from_answers(scores if rows is None else {name: part[rows] for name, part in scores.items()})


def value(
    name: MetricName, per_example: Mapping[str, Any], role: str, rows: NDArray[np.intp] | None = None
) -> float | None:
    """The metric as in measured(); None if it was not measured."""
    try:
        number = measured(name, per_example, role, rows)
    except Uncollected:
        return None
    return number if np.isfinite(number) else None


def collected(per_example: Mapping[str, Any], role: str) -> Scores:
    """One model's scores of all examples.

    Raises:
        Uncollected: an example has no answer, or the answers were not collected.
    """
    targets, answers = _array(per_example, TARGETS), _array(per_example, f"{role}.{ANSWER}")
    if targets is None or answers is None or targets.shape != answers.shape:
        raise Uncollected(f"there are no answers of the {role} by example")
    if not (np.isfinite(targets).all() and np.isfinite(answers).all()):
        raise Uncollected(f"some answers of the {role} were not measured")
    return {"target": targets.astype(np.int64), "answer": answers.astype(np.int64)}


def columns(per_example: Mapping[str, Any], role: str) -> FloatArray:
    """One model's per-example results as a table (N, COLUMNS), whose rows can be weighted and summed.

    A missing array becomes a column of NaN, so that only its metrics are not measured.

    Raises:
        Unmeasured: examples cannot be counted, or the model has no results, or results of other examples.
    """
    tokens = _array(per_example, "weights.tokens")
    if tokens is None or tokens.ndim != 1:
        raise Unmeasured("the number of predictions per example (weights.tokens) is missing")
    count = len(tokens)
    hits, confidence = (_array(per_example, f"{role}.confidence_{part}") for part in ("correct", "sum"))
    gaps = None if hits is None or confidence is None or hits.shape != confidence.shape else hits - confidence
    nll_sums, correct = _array(per_example, f"{role}.nll"), _array(per_example, f"{role}.correct")
    if nll_sums is None and correct is None:
        raise Unmeasured(f"there are no per-example results of the {role}")
    table = np.full((count, COLUMNS), np.nan)
    table[:, 2] = tokens
    for column, part in ((0, nll_sums), (1, correct), (3, _array(per_example, "weights.bytes"))):
        if part is not None:
            if part.shape != (count,):
                raise Unmeasured(f"the {role}'s results are not paired: {part.size} for {count} examples")
            table[:, column] = part
    if gaps is not None and gaps.shape == (count, BINS):
        table[:, 4:] = gaps
    return table


def bins(per_example: Mapping[str, Any], role: str) -> list[Bin]:
    """The points of the calibration plot: mean confidence, accuracy and share of predictions, bin by bin.

    An empty bin has weight 0, and neither confidence nor accuracy.
    """
    parts = [_array(per_example, f"{role}.confidence_{part}") for part in ("count", "sum", "correct")]
    sums = np.array([np.full(BINS, np.nan) if part is None else part.sum(axis=0) for part in parts])
    if not np.isfinite(sums).all():
        return []
    return [
        {
            "confidence": float(confidence / count) if count else None,
            "accuracy": float(hits / count) if count else None,
            "weight": float(count / sums[0].sum()),
        }
        for count, confidence, hits in sums.T
    ]


def bin_of(confidence: FloatArray) -> NDArray[np.int64]:
    """The bin ((m - 1) / 15, m / 15] that each confidence falls into; NaN counts as bin 0 and stays NaN in its sum."""
    places: NDArray[np.int64] = np.clip(np.ceil(np.nan_to_num(confidence) * BINS) - 1, 0, BINS - 1).astype(np.int64)
    return places


def _array(per_example: Mapping[str, Any], name: str) -> FloatArray | None:
    try:
        return np.asarray(per_example[name], dtype=np.float64)
    except (KeyError, TypeError, ValueError):
        return None
