"""Advice if the control is better than the student: change the teacher, the objectives, the time or the candidate.

The trials behind the order, and behind the proposed weights, are in docs/how-it-works/benchmarks.md.
"""

from collections.abc import Iterator

from understudy.evaluate.cautions import meaning
from understudy.evaluate.metrics import METRICS, Unmeasured
from understudy.evaluate.statistics import Bootstrap
from understudy.recipe import MetricName, Objectives, ObjectiveSection
from understudy.recipe.roles import CONTROL, STUDENT, TEACHER

LABELS, TEMPERATURE = 0.5, 1.0
"""The proposed values: the gradient is then that of an even mixture of labels and the teacher's distribution."""


def is_worse(bootstrap: Bootstrap, metric: MetricName, confidence: float, role: str, baseline: str) -> bool:
    """Whether one model is significantly worse than another: the paired interval excludes 0."""
    try:
        difference = bootstrap.difference(metric, role, baseline, confidence)
    except Unmeasured:
        return False
    return meaning(difference, METRICS[metric]) == "worse"


def advice(bootstrap: Bootstrap, metric: MetricName, confidence: float, objectives: Objectives) -> list[str]:
    """Advice in sentences, in the order in which to try it; empty if the student is not worse than its control.

    Args:
        bootstrap: the bootstrap of teacher, student and control.
        metric: the gate's.
        confidence: the gate's.
        objectives: the recipe's student.distill.
    """
    if not is_worse(bootstrap, metric, confidence, STUDENT, CONTROL):
        return []
    useless = is_worse(bootstrap, metric, confidence, TEACHER, CONTROL)
    return list(_about_teacher() if useless else _about_student(objectives))


def _about_teacher() -> Iterator[str]:
    yield (
        "The teacher is worse than the control, so distilling from it cannot help: train it longer (teacher.train), or "
        "take a better or larger one (teacher.model)."
    )
    yield _CONTROL


def _about_student(objectives: Objectives) -> Iterator[str]:
    labels = sum(objective.weight for objective in objectives if not objective.requirements.signals)
    logits = [
        objective for objective in objectives if objective.requirements.signals == {"logits"} and objective.weight
    ]
    share = labels / (labels + sum(objective.weight for objective in logits)) if logits else 1.0
    if logits and (share < LABELS or _temperature(logits[0]) > TEMPERATURE):
        now = ", ".join(f"logits {term.weight:g} at temperature {_temperature(term):g}" for term in logits)
        yield (
            f"Change the weights and the temperature (student.distill): they are labels {labels:g}, {now}; try labels "
            f"{LABELS:g}, logits {1 - LABELS:g} at temperature {TEMPERATURE:g}."
        )
    yield "Train the student longer (student.train): imitating the teacher takes more steps than the labels alone."
    yield "Take a better teacher (teacher.model), or train it longer (teacher.train)."
    yield _CONTROL


def _temperature(objective: ObjectiveSection) -> float:
    return float(getattr(objective, "temperature", 1.0))


_CONTROL = "Or register the control, named as such: --set register.control=true; nothing is trained again."
