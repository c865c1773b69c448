"""Advice after a rejection: what to change if the student is worse than its control, or too far behind its teacher.

Against the control: the teacher, the objectives, the time or the candidate. The trials behind this order, and behind
the proposed weights, are in docs/how-it-works/benchmarks.md.
"""

from collections.abc import Iterator, Sequence

from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.cautions import meaning
from understudy.evaluate.contents import Confusion
from understudy.evaluate.metrics import METRICS
from understudy.evaluate.quality import Rule
from understudy.evaluate.statistics import Bootstrap
from understudy.recipe import MetricName, Objectives, ObjectiveSection
from understudy.recipe.roles import CONTROL, STUDENT, TEACHER

ONE_LABEL = 0.9
"""The share of the examples of all other labels that get one label, from which on a student has hardly learned."""

LABELS, TEMPERATURE = 0.5, 1.0
"""The proposed values: the gradient is then that of an even mixture of labels and the teacher's distribution."""


def is_worse(bootstrap: Bootstrap, metric: MetricName, confidence: float, role: str, baseline: str) -> bool:
    """Whether one model is significantly worse than another: the paired interval excludes 0."""
    try:
        difference = bootstrap.difference(metric, role, baseline, confidence)
    except Unmeasured:
        return False
    return meaning(difference, METRICS[metric]) == "worse"


def advice(
    bootstrap: Bootstrap,
    metric: MetricName,
    confidence: float,
    objectives: Objectives,
    against_teacher: Rule | None = None,
    confusion: Confusion | None = None,
) -> list[str]:
    """Advice in sentences, in the order in which to try it; empty if student and control are good enough.

    Args:
        bootstrap: the bootstrap of teacher, student and control.
        metric: the gate's.
        confidence: the gate's.
        objectives: the recipe's student.distill.
        against_teacher: the outcome of the rule against the teacher, if there is one.
        confusion: the student's, if there is one.
    """
    failed = against_teacher if against_teacher and not against_teacher.passed and against_teacher.interval else None
    one_label = list(_on_one_label(confusion)) if failed and confusion else []
    if is_worse(bootstrap, metric, confidence, STUDENT, CONTROL):
        useless = is_worse(bootstrap, metric, confidence, TEACHER, CONTROL)
        return [*one_label, *(_about_teacher() if useless else _about_student(objectives))]
    return list(_about_loss(failed, one_label)) if failed else []


def _about_loss(failed: Rule, one_label: Sequence[str]) -> Iterator[str]:
    """A loss against the teacher that the test split could not rule out; a higher margin is no advice."""
    assert failed.interval is not None
    assert failed.threshold is not None
    if failed.interval[0] <= failed.threshold:
        yield "Give more test data (data.test): the student is not known to lose more than the margin."
    yield from one_label or ["Train the student longer (student.train): its steps or its epochs."]
    yield "Take a larger student (student.model)."


def _on_one_label(confusion: Confusion) -> Iterator[str]:
    """A student that has hardly learned: it gives one label to nearly all examples of the other labels, too."""
    counts = confusion["counts"]
    answered = [sum(column) for column in zip(*counts, strict=True)]
    total, most = sum(answered), max(range(len(answered)), key=answered.__getitem__)
    others = [row for index, row in enumerate(counts) if index != most]
    wrong, other_examples = sum(row[most] for row in others), sum(map(sum, others))
    if other_examples and wrong >= ONE_LABEL * other_examples:
        yield (
            f"The student answers {confusion['labels'][most]} for {100 * answered[most] / total:.0f} % of the test "
            f"examples, of which {100 * sum(counts[most]) / total:.0f} % have this label: it has hardly learned. Train "
            "it for more steps (student.train), or with a higher learning rate (student.train.optimizer.learning_rate)."
        )


def _about_teacher() -> Iterator[str]:
    yield (
        "The teacher is worse than the control, so distilling from it cannot help: train it longer (teacher.train), or "
        "take a better or larger one (teacher.model)."
    )
    yield _CONTROL


def _about_student(objectives: Objectives) -> Iterator[str]:
    labels = sum(_mean_weight(objective) for objective in objectives if not objective.requirements.signals)
    logits = [
        objective for objective in objectives if objective.requirements.signals == {"logits"} and any(objective.weights)
    ]
    share = labels / (labels + sum(map(_mean_weight, logits))) if logits else 1.0
    if logits and (share < LABELS or _temperature(logits[0]) > TEMPERATURE):
        now = ", ".join(map(_in_words, logits))
        yield (
            f"Change the weights and the temperature (student.distill): they are labels {labels:g}, {now}; try labels "
            f"{LABELS:g}, logits {1 - LABELS:g} at temperature {TEMPERATURE:g}."
        )
    yield "Train the student longer (student.train): imitating the teacher takes more steps than the labels alone."
    yield "Take a better teacher (teacher.model), or train it longer (teacher.train)."
    yield _CONTROL


def _in_words(objective: ObjectiveSection) -> str:
    at = f" at temperature {_temperature(objective):g}" if hasattr(objective, "temperature") else ""
    first, last = objective.weights
    weight = f"{first:g}" if first == last else f"{first:g} to {last:g}"
    return f"{objective.type} {weight}{at}"


def _mean_weight(objective: ObjectiveSection) -> float:
    """Its weight, or the mean of one with a schedule."""
    return sum(objective.weights) / 2


def _temperature(objective: ObjectiveSection) -> float:
    return float(getattr(objective, "temperature", 1.0))


_CONTROL = "Or register the control, named as such: --set register.control=true; nothing is trained again."
