"""Confidence intervals with nominal coverage at both ends: functions of numbers alone.

Each was chosen by simulation: at a true loss of exactly the margin 2.5 % of the test sets may pass at a confidence of
95 %; docs/how-it-works/benchmarks.md has the measured rates. A paired difference of right and wrong answers has a
score interval. A ratio of sums (bits per byte, the loss as a share of the teacher's) has the widest of four
intervals, because each of them fails somewhere: the percentile interval if few examples carry the loss, the
studentised bootstrap if very few do, Student's t with a skewed loss, and all three if a few long documents have most
of the text.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Interval = tuple[float, float]

POWER = 0.8
RARE = 0.1  # the smallest share of examples whose loss must be detected
STEP = 1e-6  # of the finite difference for the slope of `shown`
ROUNDING = 1e-12  # a variance below this share of the squares that it is a difference of is rounding


def wilson(right: float, count: float, confidence: float) -> Interval:
    """The score interval of a share, `right` of `count` independent answers (Wilson 1927)."""
    # Not Wald's p ± z sqrt(p(1 - p)/n): that has no width at all for a model that is right on every example.
    square = _normal((1 + confidence) / 2) ** 2
    share = right / count
    centre = (share + square / (2 * count)) / (1 + square / count)
    half = math.sqrt(square * (share * (1 - share) / count + square / (4 * count**2))) / (1 + square / count)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def paired_score(wins: int, losses: int, count: int, confidence: float) -> Interval:
    """The score interval of a paired difference of shares, (wins - losses) / count (Tango 1998).

    Of `count` examples one model alone is right on `wins`, and the other alone on `losses`. The standard error is
    that of the most likely shares at each difference, not at the observed one: Wald's is 0 if no two answers differ,
    and passes 8 % where 2.5 % may (200 images, 2 % of answers differ).
    """
    return -_upper_score(losses, wins, count, confidence), _upper_score(wins, losses, count, confidence)


def _upper_score(wins: int, losses: int, count: int, confidence: float) -> float:
    from scipy.optimize import brentq

    quantile, observed = _normal((1 + confidence) / 2), (wins - losses) / count
    if observed == 1:
        return 1.0

    def beyond(difference: float) -> float:
        """Positive if a true difference of this size is not ruled out."""
        # Given a difference, the likelihood of the share of losses has its maximum at the root of a quadratic: Tango's
        # equation, with `middle` its linear coefficient.
        middle = -wins - losses + (2 * count - wins + losses) * difference
        root = math.sqrt(max(middle**2 + 8 * count * losses * difference * (1 - difference), 0.0))
        loss_share = (root - middle) / (4 * count)  # the most likely share of losses at this difference
        variance = max(count * (2 * loss_share + difference * (1 - difference)), 0.0)
        return quantile * math.sqrt(variance) - (count * difference - (wins - losses))

    # If no answers differ, the observed value is a root, too; no end is nearer to it than a tenth of least_score().
    return float(brentq(beyond, observed + least_score(count, confidence) / 10, 1.0, xtol=1e-12))


def least_score(count: int, confidence: float) -> float:
    """The upper end for two models that agree on all of `count` examples: z^2 / (n + z^2), about 3.84 / n at 95 %."""
    square = _normal((1 + confidence) / 2) ** 2
    return square / (count + square)


@dataclass(frozen=True)
class Moments:
    """Sums over the examples of a test set, or of each of many resamples (leading dimension R).

    first: sums of K columns, (..., K). second: sums of their products, (..., K, K).
    """

    first: FloatArray
    second: FloatArray


@dataclass(frozen=True)
class Ratio:
    """A ratio of two sums, as coefficients (K,) of the columns, and a monotone function `shown` of it."""

    numerator: FloatArray
    denominator: FloatArray
    shown: Callable[[FloatArray], FloatArray]

    @property
    def used(self) -> NDArray[np.intp]:
        """The columns with a coefficient; others may be NaN (not measured) and must not reach this ratio."""
        return np.flatnonzero((self.numerator != 0) | (self.denominator != 0))

    def value(self, sums: Moments) -> tuple[FloatArray, FloatArray]:
        """The ratio before `shown`, and its linearised standard error (Cochran 1977, section 6.4), (...) each."""
        used = self.used
        numerator, denominator = self.numerator[used], self.denominator[used]
        first, second = sums.first[..., used], sums.second[..., used[:, None], used]
        with np.errstate(divide="ignore", invalid="ignore"):
            total = first @ denominator
            ratio: FloatArray = np.asarray((first @ numerator) / total)
            residual = numerator - ratio[..., None] * denominator
            squares = np.einsum("...i,...j,...ij->...", residual, residual, second)
            scale = np.einsum("...i,...ii->...", residual**2, second)
            # The sum of squared residuals is computed from sums of products, so for two equal models it is the
            # rounding error of large numbers, about 1e-16 of them and of either sign.
            squares = np.where(squares > ROUNDING * scale, squares, 0.0)
            return ratio, np.asarray(np.sqrt(squares) / np.abs(total))


def ratio_interval(
    ratio: Ratio, table: FloatArray, weights: FloatArray, resamples: Moments, confidence: float
) -> tuple[float, Interval, float]:
    """A ratio of sums over examples: its value, the widest of four confidence intervals, and a standard error.

    - the percentiles of the bootstrap (Efron & Tibshirani 1993, chapter 13);
    - the studentised bootstrap (Hall 1988; Efron & Tibshirani 1993, chapter 12), which is infinite if resamples that
      miss the few losing examples have no spread at all: so few were seen that more may be missing;
    - Student's t with the linearised standard error, by document where examples are documents;
    - Student's t with the standard error of examples whose losses per token vary alike whatever their length (Royall
      & Cumberland 1981), and the degrees of freedom of the effective number of examples (Kish 1965). If the losing
      documents of the sample happen to be short, the first three miss that long ones lose too.

    Args:
        ratio: the columns to divide.
        table: per-example columns, (N, K).
        weights: predictions per example, (N,).
        resamples: the moments of the resamples.
        confidence: level of the two-sided interval.
    """
    sample = Moments(table.sum(axis=0), table.T @ table)
    point, spread = (float(number) for number in ratio.value(sample))
    low, high = _resampled_ends(point, spread, *ratio.value(resamples), confidence)
    corrected = spread * math.sqrt(len(table) / (len(table) - 1))  # n - 1, as Student's t assumes
    uniform_error, effective = _uniform_standard_error(ratio, table, weights, point)
    for error, examples in ((corrected, len(table)), (uniform_error, effective)):
        half = student_t(examples - 1, confidence) * error
        low, high = min(low, -half), max(high, half)
    # All ends are of the ratio itself and go through `shown` last: it is monotone, so they stay ends.
    lower, value, upper = (float(ratio.shown(np.array(point + step))) for step in (low, 0.0, high))
    slope = (float(ratio.shown(np.array(point + STEP))) - value) / STEP
    return value, (lower, upper), slope * max(corrected, uniform_error)


def _resampled_ends(
    point: float, spread: float, points: FloatArray, spreads: FloatArray, confidence: float
) -> tuple[float, float]:
    """Distances from the value to the ends: on each side the farther of the percentile and the studentised end."""
    distance = points - point
    low, high = percentiles(distance, confidence)
    if spread == 0:  # all examples have one and the same ratio: there is nothing to divide by
        return low, high
    # A resample that misses every losing example has no spread: its t is infinite. If more than 2.5 % of the
    # resamples do, the interval's end is infinite, and the gate fails closed: too few examples carry the loss.
    with np.errstate(divide="ignore", invalid="ignore"):
        studentised = np.where(distance == 0, 0.0, distance / spreads)
    least = float(np.quantile(studentised, (1 - confidence) / 2, method="lower"))  # "linear" makes NaN of infinite ones
    most = float(np.quantile(studentised, (1 + confidence) / 2, method="higher"))
    # The ends are swapped: a large t of a resample means that the true value may lie as far below.
    return min(low, -most * spread), max(high, -least * spread)


def fieller(numerator: FloatArray, denominator: FloatArray, confidence: float) -> Interval | None:
    """The interval of a ratio of two means of paired differences (Fieller 1954); None if it is unbounded.

    It contains each ratio r for which a t-test does not reject that `numerator - r * denominator` has mean 0. If the
    mean of `denominator` does not differ significantly from 0, any ratio may be true, and there is no interval.

    Args:
        numerator: per-example differences, (N,).
        denominator: per-example differences of the same examples, (N,).
        confidence: level of the two-sided interval.
    """
    count = len(numerator)
    (numerator_variance, covariance), (_, denominator_variance) = np.cov(numerator, denominator) / count
    first, second = float(numerator.mean()), float(denominator.mean())
    square = student_t(count - 1, confidence) ** 2
    # Quadratic in r: (first - r second)^2 = square * (numerator_variance - 2 r covariance + r^2 denominator_variance).
    leading, middle = second**2 - square * denominator_variance, first * second - square * covariance
    discriminant = middle**2 - leading * (first**2 - square * numerator_variance)
    if not leading > ROUNDING * second**2:
        return None
    half = math.sqrt(max(discriminant, 0.0))  # negative only by rounding
    return float((middle - half) / leading), float((middle + half) / leading)


def student_t(freedom: float, confidence: float) -> float:
    """The quantile of Student's t for the upper end of a two-sided interval."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _uniform_standard_error(ratio: Ratio, table: FloatArray, weights: FloatArray, point: float) -> tuple[float, float]:
    """The standard error if all examples vary alike per prediction, and the effective number of examples."""
    columns, real = ratio.used, weights > 0
    parts, coefficients = table[:, columns], (ratio.numerator - point * ratio.denominator)[columns]
    residual, scale = parts @ coefficients, np.abs(parts) @ np.abs(coefficients)
    residual = np.where(np.abs(residual) > math.sqrt(ROUNDING) * scale, residual, 0.0)
    total = abs(float(parts.sum(axis=0) @ ratio.denominator[columns]))
    spread = float(np.std(residual[real] / weights[real], ddof=1))
    return spread * math.sqrt(float(np.sum(weights**2))) / total, max(effective_number(weights), 2.0)


def effective_number(weights: FloatArray) -> float:
    """The effective number of examples of unequal weight (Kish 1965): (sum w)^2 / sum w^2."""
    squares = float(np.sum(weights**2))
    return float(np.sum(weights)) ** 2 / squares if squares else 0.0


def least_examples(confidence: float) -> int:
    """The number of examples needed to detect a loss that a tenth of them carries: 36 at 95 %.

    With fewer than log(0.025) / log(0.9), more than 2.5 % of test sets contain no losing example, and no interval
    covers an unseen loss (the rule of three: Hanley & Lippman-Hand 1983).
    """
    return math.ceil(math.log((1 - confidence) / 2) / math.log(1 - RARE))


def smallest_detectable(standard_error: float, confidence: float) -> float:
    """The smallest true difference that a test set shows with a power of 80 %.

    (z(1/2 + confidence/2) + z(0.8)) standard errors: a true loss of this size has an interval that excludes 0 in 80 %
    of test sets; and a student as good as the other model passes a margin of this size in 80 % of them.
    """
    return (_normal((1 + confidence) / 2) + _normal(POWER)) * standard_error


def percentiles(values: FloatArray, confidence: float) -> Interval:
    """The central `confidence` of the values."""
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _normal(probability: float) -> float:
    return NormalDist().inv_cdf(probability)
