"""Warnings to read before the rules: a teacher with nothing to teach, overfitting, a control as the candidate.

They do not fail the gate. A student may pass every rule although the distillation was worth nothing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.contents import Confusion
from understudy.evaluate.metrics import METRICS, Metric
from understudy.evaluate.quality import TRIVIAL, loss
from understudy.evaluate.statistics import Bootstrap, Difference
from understudy.recipe import Candidate, MetricName, Objectives
from understudy.recipe.roles import CONTROL, STUDENT, TEACHER

SHOWN = 5  # labels listed by name
TIMES, NATS = 2.0, 0.5  # overfitting: a test loss above this multiple of the training loss, and by this difference


def cautions(
    bootstrap: Bootstrap,
    metric: MetricName,
    confidence: float,
    control: Difference | None,
    training_losses: Mapping[str, float],
    confusion: Confusion | None = None,
    steps: Mapping[str, int] | None = None,
    candidate: Candidate = STUDENT,
) -> list[str]:
    """Warnings in sentences, the gravest first; empty if there are none.

    Args:
        bootstrap: the bootstrap of all models and the trivial predictor.
        metric: the gate's.
        confidence: the gate's.
        control: student minus control, if there is a control.
        training_losses: by role, in nats per prediction.
        confusion: the student's, if there is one.
        steps: each model's training steps, by role.
        candidate: the role of the model to register.
    """
    warnings = [_chance(bootstrap, metric, confidence), _untested(confusion), _unequal(steps or {})]
    warnings += [_overfitted(bootstrap, role, training) for role, training in training_losses.items()]
    outcome = meaning(control, METRICS[metric]) if control is not None else ""
    if outcome == "worse":
        warnings.append("The control, which was trained without the teacher, is better than the student.")
    if control is not None:
        warnings.append(_useless(bootstrap, metric, confidence))
    if candidate == CONTROL:
        warnings.append("The control is judged and registered here: no teacher had a part in its training.")
        warnings.append("The student is better than this control." if outcome == "better" else "")
    return [sentence for sentence in warnings if sentence]


def _untested(confusion: Confusion | None) -> str:
    if confusion is None:
        return ""
    rows = zip(confusion["labels"], confusion["counts"], strict=True)
    untested = [label for label, predictions in rows if not sum(predictions)]
    if not untested:
        return ""
    listed = ", ".join([*untested[:SHOWN], *(["and more"] if len(untested) > SHOWN else [])])
    count = f"{len(untested)} of {len(confusion['labels'])} labels"
    return f"Labels without a test example, about which nothing is known ({count}): {listed}."


def _unequal(steps: Mapping[str, int]) -> str:
    student, control = steps.get(STUDENT), steps.get(CONTROL)
    if student is None or control is None or student == control:
        return ""
    return (
        f"The student was trained for {student:,} steps and its control for {control:,}, since one of them ended early "
        "(patience): their difference is not the teacher's alone."
    )


def meaning(difference: Difference, metric: Metric) -> str:
    """The interval in words: the student is better or worse only if the interval excludes 0."""
    if not metric.is_decidable:
        return "not to be relied on"  # calibration error: statistics.py
    if difference.few:
        return "too few to tell"
    if difference.low <= 0 <= difference.high:
        return "no clear difference"
    return "better" if (difference.low > 0) == metric.higher_is_better else "worse"


def training_losses(histories: Mapping[str, Sequence[Mapping[str, Any]]], objectives: Objectives) -> dict[str, float]:
    """Each model's final training loss, over the last tenth of its log, in nats per prediction.

    The student's loss is the labels' loss times its weight, plus something positive. So loss / weight is an upper
    bound of the labels' loss; with a weight of 0 there is no bound, and the student is left out. Of a weight with a
    schedule, the smaller end bounds it.
    """
    labels = sum(min(objective.weights) for objective in objectives if not objective.requirements.signals)
    losses = {}
    for role, history in histories.items():
        logged = [float(line["loss"]) for line in history if "skipped" not in line]
        last = logged[-max(1, len(logged) // 10) :]
        weight = labels if role == STUDENT else 1.0
        if last and weight > 0:
            losses[role] = sum(last) / len(last) / weight
    return losses


def _useless(bootstrap: Bootstrap, metric: MetricName, confidence: float) -> str:
    """A warning if the control is better than the teacher."""
    try:
        difference = bootstrap.difference(metric, TEACHER, CONTROL, confidence)
    except Unmeasured:
        return ""
    if meaning(difference, METRICS[metric]) != "worse":
        return ""
    form = METRICS[metric]
    teacher, control = (form.show(bootstrap.value(metric, role)) for role in (TEACHER, CONTROL))
    return (
        "The teacher is worse than the control, which learned from the labels alone: distilling from it cannot help "
        f"({form.title} {teacher} against {control})."
    )


def _chance(bootstrap: Bootstrap, metric: MetricName, confidence: float) -> str:
    try:
        if loss(bootstrap, metric, TRIVIAL, confidence, role=TEACHER).high < 0:
            return ""
        form = METRICS[metric]
        teacher, trivial = (form.show(bootstrap.value(metric, role)) for role in (TEACHER, TRIVIAL))
    except Unmeasured:
        return ""  # the rule against the trivial predictor fails, and gives the reason
    return (
        "The teacher is not known to be better than the trivial predictor, and may have nothing to teach: "
        f"{form.title} {teacher} against {trivial}."
    )


def _overfitted(bootstrap: Bootstrap, role: str, training: float) -> str:
    try:
        test = bootstrap.value("nll", role)
    except Unmeasured:
        return ""
    if not math.isfinite(training) or test < TIMES * training or test < training + NATS:
        return ""
    return f"The {role} may be overfitted: its loss is {training:.3g} in training and {test:.3g} on the test split."
