"""How sure we are: the paired bootstrap over examples.

The test set is resampled with replacement (Efron & Tibshirani 1993, chapters 13 and 16). Every resample holds the same
examples for all models, which is what makes the comparison paired and its interval narrow (Koehn 2004). As metrics
are functions of sums over examples, a resample is a row of counts, and all resamples' sums are one matrix product.

The example (an image, a document) is what is drawn; tokens of one document are not independent and stay together.
Calibration error is a sum of absolute values and therefore biased upwards in every resample; the bias mostly cancels
in a difference, but its one-sample interval sits a little high.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from understudy.evaluate.metrics import COLUMNS, METRICS, FloatArray, Sums, Unmeasured, columns, compute
from understudy.recipe import MetricName

RESAMPLES = 10_000
SEED = 0
POWER = 0.8
CELLS = 2**21  # counts held at once: 16 MiB for each of the three arrays that a chunk takes


@dataclass(frozen=True)
class Difference:
    """How far a model is from another, model - other; a share of the other's value for relative metrics."""

    observed: float
    low: float
    high: float
    standard_error: float
    predictions: float


class Bootstrap:
    """The sums of all resamples, for several models at once.

    A model whose results cannot be used is no error until it is asked for: its methods raise Unmeasured.
    """

    def __init__(
        self, per_example: Mapping[str, Any], roles: Iterable[str], resamples: int = RESAMPLES, seed: int = SEED
    ) -> None:
        tables: dict[str, FloatArray] = {}
        self.unusable: dict[str, str] = {}
        for role in roles:
            try:
                tables[role] = columns(per_example, role)
            except Unmeasured as error:
                self.unusable[role] = str(error)
        self.examples = max((len(table) for table in tables.values()), default=0)
        if self.examples < 2:
            self.unusable |= dict.fromkeys(tables, f"{self.examples} test examples are too few to compare anything")
            tables = {}
        sums = resampled_sums(np.hstack(list(tables.values())), resamples, seed) if tables else np.empty((0, 0))
        self._points = {role: Sums.unpack(table.sum(axis=0)) for role, table in tables.items()}
        self._resamples = {
            role: Sums.unpack(sums[:, place * COLUMNS : (place + 1) * COLUMNS]) for place, role in enumerate(tables)
        }

    def value(self, name: MetricName, role: str) -> float:
        """The metric on the test set itself."""
        return float(self._distribution(name, role)[0])

    def interval(self, name: MetricName, role: str, confidence: float) -> tuple[float, float]:
        """The percentile interval of one model's metric.

        An accuracy of 0 or 1 is the same in every resample; its interval is as wide as what so many predictions could
        have missed, which for independent ones is the exact interval (Clopper & Pearson 1934).
        """
        low, high = _percentiles(self._distribution(name, role)[1], confidence)
        if name != "accuracy" or (low, high) not in ((0, 0), (1, 1)):
            return low, high
        unseen = unseen_share(float(self._points[role].tokens), confidence)
        return max(low - unseen, 0.0), min(high + unseen, 1.0)

    def difference(self, name: MetricName, role: str, other: str, confidence: float) -> Difference:
        """The paired difference role - other with its percentile interval.

        Of two models that are right on the same examples it is as wide as what so many could have missed.
        """
        (point, many), (other_point, other_many) = (self._distribution(name, one) for one in (role, other))
        observed, differences = point - other_point, many - other_many
        if METRICS[name].relative:
            if other_point == 0 or not other_many.all():
                raise Unmeasured(f"the {other}'s {METRICS[name].title} is 0: no share of it can be taken")
            observed, differences = observed / other_point, differences / other_many
        low, high = _percentiles(differences, confidence)
        predictions = float(self._points[role].tokens)
        if name == "accuracy" and low == high == 0:
            high = unseen_share(predictions, confidence)
            low = -high
        return Difference(float(observed), low, high, float(differences.std(ddof=1)), predictions)

    def _distribution(self, name: MetricName, role: str) -> tuple[FloatArray, FloatArray]:
        """The metric's value and its values over all resamples, (R,).

        Raises:
            Unmeasured: either is not finite, or the model's results cannot be used.
        """
        if role in self.unusable:
            raise Unmeasured(self.unusable[role])
        point, many = compute(name, self._points[role]), compute(name, self._resamples[role])
        if not (np.isfinite(point) and np.isfinite(many).all()):
            raise Unmeasured(f"the {role}'s {METRICS[name].title} was not measured")
        return point, many


def resampled_sums(table: FloatArray, resamples: int = RESAMPLES, seed: int = SEED) -> FloatArray:
    """Sums (R, K) of `resamples` draws of N rows with replacement out of a table (N, K); always the same ones."""
    generator = np.random.default_rng(seed)
    rows = len(table)
    sums = np.empty((resamples, table.shape[1]))
    chunk = max(1, CELLS // rows)
    for start in range(0, resamples, chunk):
        draws = min(chunk, resamples - start)
        chosen = generator.integers(0, rows, size=(draws, rows)) + np.arange(draws)[:, None] * rows
        counts = np.bincount(chosen.ravel(), minlength=draws * rows).reshape(draws, rows)
        with np.errstate(invalid="ignore", over="ignore"):
            sums[start : start + draws] = counts.astype(np.float64) @ table
    return sums


def smallest_detectable(standard_error: float, confidence: float) -> float:
    """The smallest true difference that a test set would have shown, with a power of 80 %.

    (z(1/2 + confidence/2) + z(0.8)) standard errors: a true loss of this size has an interval that excludes 0 in
    80 % of test sets; and a student as good as the other passes a margin of this size in 80 % of them.
    """
    return (NormalDist().inv_cdf((1 + confidence) / 2) + NormalDist().inv_cdf(POWER)) * standard_error


def unseen_share(predictions: float, confidence: float) -> float:
    """The largest share of predictions of which none need show up among so many: about 3.7 / N at 95 %.

    The bootstrap cannot resample what it never saw: two models that agree on ten examples are not known to agree.
    This is the exact bound behind the "rule of three" (Hanley & Lippman-Hand 1983), at the confidence of one end
    of the two-sided interval.
    """
    return 1 - math.pow((1 - confidence) / 2, 1 / predictions)


def student_t_margin(standard_error: float, examples: int, confidence: float) -> float:
    """Half of Student's t interval for a mean of so many examples, from its bootstrap standard error.

    The percentile interval of few examples is too narrow, and of two it is only what lies between them: it takes the
    normal's quantiles where t's belong, and its standard error lacks the factor sqrt(n / (n - 1)) (Hesterberg 2015,
    section 4.1). From some hundred examples on the two agree.
    """
    from scipy.special import stdtrit

    quantile = float(stdtrit(examples - 1, (1 + confidence) / 2))
    return quantile * standard_error * math.sqrt(examples / (examples - 1))


def _percentiles(values: FloatArray, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
