"""The rules about the candidate's quality: against other models, the trivial predictor, a minimum.

The candidate is the student, or the control if the recipe registers that one.

The rule against a model is a test of non-inferiority (Piaggio et al. 2012): it is not enough that no loss was seen,
the test set must rule out a loss larger than the margin. The rule against the trivial predictor is one of
superiority: the test set must rule out that the candidate is no better. Against the control it is enough that the
test set does not show the student to be worse: a teacher must at least be worth a training of the same time without
it.
"""

import math
from dataclasses import dataclass

from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.contents import RuleOutcome
from understudy.evaluate.intervals import least_examples
from understudy.evaluate.metrics import METRICS
from understudy.evaluate.statistics import Bootstrap, Difference
from understudy.recipe import Candidate, Gate, MetricName
from understudy.recipe.roles import CONTROL, STUDENT

ROUNDING = 1e-12  # 0.98 - 0.96 is more than 0.02 in floating point; a loss of exactly the margin is allowed
TRIVIAL = "trivial"


@dataclass(frozen=True)
class Rule:
    """The outcome of one rule: the observed value, the threshold, and a sentence for the reader."""

    rule: str
    passed: bool
    detail: str
    observed: float | None = None
    interval: tuple[float, float] | None = None
    threshold: float | None = None

    @property
    def outcome(self) -> RuleOutcome:
        """The outcome as in verdict.json."""
        return {
            "rule": self.rule,
            "passed": self.passed,
            "detail": self.detail,
            "observed": self.observed,
            "interval": self.interval,
            "threshold": self.threshold,
        }


@dataclass(frozen=True)
class Loss:
    """How much worse one model is than another; negative when it is better."""

    observed: float
    low: float
    high: float
    smallest: float


def loss(bootstrap: Bootstrap, metric: MetricName, baseline: str, confidence: float, role: str = STUDENT) -> Loss:
    """A model's loss against another one.

    Raises:
        Unmeasured: there is no reliable interval, one model has no usable results, or there are too few examples.
    """
    if not METRICS[metric].is_decidable:
        raise Unmeasured(f"no interval of the {METRICS[metric].title} is reliable; let the gate compare nll")
    difference = bootstrap.difference(metric, role, baseline, confidence)
    if difference.few:  # too few examples fail closed, as all missing measurements do
        raise Unmeasured(difference.few)
    return _oriented(difference, metric)


def _oriented(difference: Difference, metric: MetricName) -> Loss:
    if METRICS[metric].higher_is_better:
        return Loss(-difference.observed, -difference.high, -difference.low, difference.smallest)
    return Loss(difference.observed, difference.low, difference.high, difference.smallest)


def against_model(
    bootstrap: Bootstrap, measured: Loss, metric: MetricName, baseline: str, gate: Gate, role: Candidate = STUDENT
) -> Rule:
    """Whether a loss above the margin is ruled out."""
    form = METRICS[metric]
    margin, smallest = (form.show_difference(number).lstrip("+") for number in (gate.margin, measured.smallest))
    # Only the upper end counts. A loss within the margin proves nothing: at a true loss of the margin half of all
    # test sets show one.
    passed = measured.high <= gate.margin + ROUNDING
    detail = _compared(bootstrap, measured, metric, (role, baseline), gate.confidence)
    detail += f"its upper end is {'within' if passed else 'over'} the margin of {margin}."
    if not passed and measured.low <= gate.margin < measured.smallest:  # neither side of the margin is ruled out
        detail += " This test set is too small to see a loss of the margin: the smallest it could have seen is "
        detail += f"{smallest}."
    interval = (measured.low, measured.high)
    return Rule(f"quality-against-{baseline}", passed, detail, measured.observed, interval, gate.margin)


def against_control(bootstrap: Bootstrap, metric: MetricName, gate: Gate) -> Rule:
    """Whether the student is not significantly worse than its control."""
    name = "quality-against-control"
    try:
        measured = _oriented(bootstrap.difference(metric, STUDENT, CONTROL, gate.confidence), metric)
    except Unmeasured as error:
        return failed(name, 0.0, str(error))
    passed = measured.low <= 0
    # A difference that few examples carry shows neither to be worse.
    if not math.isfinite(measured.low + measured.high):
        few = "too few test examples carry the difference to tell how large it is"
        return Rule(name, passed, f"{few.capitalize()}.", measured.observed) if passed else failed(name, 0.0, few)
    detail = _compared(bootstrap, measured, metric, (STUDENT, CONTROL), gate.confidence)
    detail += (
        "it is not known to be worse than the same model trained without the teacher."
        if passed
        else ("its lower end is above 0: the student is worse than the same model trained without the teacher.")
    )
    return Rule(name, passed, detail, measured.observed, (measured.low, measured.high), 0.0)


def against_trivial(bootstrap: Bootstrap, metric: MetricName, gate: Gate, role: Candidate = STUDENT) -> Rule:
    """Whether the candidate is significantly better than the trivial predictor."""
    name = f"quality-against-{TRIVIAL}"
    try:
        measured = loss(bootstrap, metric, TRIVIAL, gate.confidence, role)
    except Unmeasured as error:
        return failed(name, 0.0, str(error))
    passed = measured.high < 0
    detail = _compared(bootstrap, measured, metric, (role, TRIVIAL), gate.confidence)
    detail += "its upper end is below 0." if passed else f"its upper end is not below 0: the {role} may have learned "
    detail += "" if passed else "nothing but how frequent the answers are."
    return Rule(name, passed, detail, measured.observed, (measured.low, measured.high), 0.0)


def above_minimum(
    bootstrap: Bootstrap, metric: MetricName, minimum: float, confidence: float, role: Candidate = STUDENT
) -> Rule:
    """Whether the worse end of the candidate's interval reaches the recipe's minimum."""
    form = METRICS[metric]
    try:
        value, (low, high) = bootstrap.value(metric, role), bootstrap.interval(metric, role, confidence)
    except Unmeasured as error:
        return failed("minimum", minimum, str(error))
    examples = bootstrap.of(metric, role)[0].examples
    # A student that is right on all of ten examples has a lower end of 72 %, which a low minimum would pass. But so
    # few may miss a tenth of the population altogether.
    if examples < least_examples(confidence) or not math.isfinite(low + high):
        return failed("minimum", minimum, f"{examples} test examples are too few to tell")
    if form.from_answers and (few := bootstrap.too_few(metric, (low, high), confidence)):
        return failed("minimum", minimum, few)
    passed = low >= minimum - ROUNDING if form.higher_is_better else high <= minimum + ROUNDING
    end, reached = ("lower" if form.higher_is_better else "upper"), ("reaches" if passed else "does not reach")
    detail = f"{form.heading}: {role} {form.show(value)}, {100 * confidence:g} % interval {form.show(low)} "
    detail += f"to {form.show(high)}; its {end} end {reached} the minimum of {form.show(minimum)}."
    return Rule("minimum", passed, detail, value, (low, high), minimum)


def failed(rule: str, threshold: float | None, reason: str) -> Rule:
    """A rule that was not passed because something could not be determined."""
    return Rule(rule, passed=False, detail=f"Not passed, because {reason.rstrip('.')}.", threshold=threshold)


def _compared(
    bootstrap: Bootstrap, measured: Loss, metric: MetricName, roles: tuple[str, str], confidence: float
) -> str:
    (role, baseline), form = roles, METRICS[metric]
    value, other_value = (form.show(bootstrap.value(metric, model)) for model in roles)
    observed, low, high = (form.show_difference(number) for number in (measured.observed, measured.low, measured.high))
    name = "trivial predictor" if baseline == TRIVIAL else baseline
    return (
        f"{form.heading}: {role} {value}, {name} {other_value}; loss {observed}, "
        f"{100 * confidence:g} % interval {low} to {high}; "
    )
