"""What a reader has to know before the rules: a teacher with nothing to teach, overfitting, a control that is put up.

None of it fails the gate. A student may pass every rule and the distillation still be worth nothing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.evaluate.contents import Confusion
from understudy.evaluate.metrics import METRICS, Metric, Unmeasured
from understudy.evaluate.quality import TRIVIAL, loss
from understudy.evaluate.statistics import Bootstrap, Difference
from understudy.recipe import Candidate, LabelsObjective, MetricName, ObjectiveSection

SHOWN = 5  # labels by name
TIMES, NATS = 2.0, 0.5  # a test loss so many times the training loss, and so much above it, is overfitting


def cautions(
    bootstrap: Bootstrap,
    metric: MetricName,
    confidence: float,
    control: Difference | None,
    training_losses: Mapping[str, float],
    confusion: Confusion | None = None,
    steps: Mapping[str, int] | None = None,
    candidate: Candidate = "student",
) -> list[str]:
    """Sentences, the gravest first; empty when nothing is to be said.

    Args:
        bootstrap: of all models and the trivial predictor.
        metric: the gate's.
        confidence: the gate's.
        control: student minus control, where there is a control.
        training_losses: by role, in nats per prediction.
        confusion: the student's, where there is one.
        steps: how long each model was trained, by role.
        candidate: whom the registry is to get.
    """
    found = [_chance(bootstrap, metric, confidence), _untested(confusion), _unequal(steps or {})]
    found += [_overfitted(bootstrap, role, training) for role, training in training_losses.items()]
    worth = meaning(control, METRICS[metric]) if control is not None else ""
    if worth == "worse":
        found.append("The control, which was trained without the teacher, is better than the student.")
    if control is not None:
        found.append(_useless(bootstrap, metric, confidence))
    if candidate == "control":
        found.append("What is judged and registered here is the control: no teacher had a part in its training.")
        found.append("The student is better than this control." if worth == "better" else "")
    return [sentence for sentence in found if sentence]


def _untested(confusion: Confusion | None) -> str:
    if confusion is None:
        return ""
    rows = zip(confusion["labels"], confusion["counts"], strict=True)
    unseen = [label for label, answers in rows if not sum(answers)]
    if not unseen:
        return ""
    named = ", ".join([*unseen[:SHOWN], *(["and more"] if len(unseen) > SHOWN else [])])
    count = f"{len(unseen)} of {len(confusion['labels'])} labels"
    return f"Of {count} there is no test example, and nothing is known: {named}."


def _unequal(steps: Mapping[str, int]) -> str:
    student, control = steps.get("student"), steps.get("control")
    if student is None or control is None or student == control:
        return ""
    return (
        f"The student was trained for {student:,} steps and its control for {control:,}, since one of them ended early "
        "(patience): their difference is not the teacher's alone."
    )


def meaning(seen: Difference, metric: Metric) -> str:
    """What the interval says about the student: better or worse only when it leaves out 0."""
    if metric.ratio is None:
        return "not to be relied on"  # calibration error: statistics.py
    if seen.few:
        return "too few to tell"
    if seen.low <= 0 <= seen.high:
        return "no clear difference"
    return "better" if (seen.low > 0) == metric.higher_is_better else "worse"


def training_losses(
    histories: Mapping[str, Sequence[Mapping[str, Any]]], objectives: Sequence[ObjectiveSection]
) -> dict[str, float]:
    """Each model's training loss at its end, over the last tenth of what was logged, in nats per prediction.

    The student's loss is that of the labels times their weight, and something positive, so that it says at most
    loss / weight about the labels; with a weight of 0 it says nothing.
    """
    labels = sum(objective.weight for objective in objectives if isinstance(objective, LabelsObjective))
    found = {}
    for role, history in histories.items():
        taken = [float(line["loss"]) for line in history if "skipped" not in line]
        last = taken[-max(1, len(taken) // 10) :]
        weight = labels if role == "student" else 1.0
        if last and weight > 0:
            found[role] = sum(last) / len(last) / weight
    return found


def _useless(bootstrap: Bootstrap, metric: MetricName, confidence: float) -> str:
    """A teacher that the control beats."""
    try:
        seen = bootstrap.difference(metric, "teacher", "control", confidence)
    except Unmeasured:
        return ""
    if meaning(seen, METRICS[metric]) != "worse":
        return ""
    form = METRICS[metric]
    teacher, control = (form.show(bootstrap.value(metric, role)) for role in ("teacher", "control"))
    return (
        "The teacher is worse than the control, which learned from the labels alone: distilling from it cannot help "
        f"({form.title} {teacher} against {control})."
    )


def _chance(bootstrap: Bootstrap, metric: MetricName, confidence: float) -> str:
    try:
        if loss(bootstrap, metric, TRIVIAL, confidence, role="teacher").high < 0:
            return ""
        form = METRICS[metric]
        teacher, trivial = (form.show(bootstrap.value(metric, role)) for role in ("teacher", TRIVIAL))
    except Unmeasured:
        return ""  # the rule of the student against the trivial predictor fails, and says why
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
