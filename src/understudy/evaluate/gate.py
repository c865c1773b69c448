"""The gate: a verdict on the candidate, rule by rule. A rule whose numbers were not measured is not passed.

The candidate is the student, or its control if the recipe registers that one.

Quality, against the teacher and, if there is one, the champion: the loss is the candidate's shortfall (accuracy:
other - candidate; the rest: candidate - other), absolute for accuracy, a share of the other's value for the rest. The
upper end of its two-sided interval at `gate.confidence` (intervals.py) must not exceed `gate.margin`. As only that
end is compared, a candidate whose true loss is the margin passes with a probability of (1 - confidence) / 2: 2.5 % at
a confidence of 95 %, a one-sided test at 97.5 %. The rates that benchmarks/gate_rates.py measures are in
docs/how-it-works/benchmarks.md. Too few examples fail the rule.

Against its control, the same model trained without the teacher, the student must not be worse by an interval that
excludes 0. The two are compared whenever both exist: if the control is better, the teacher was worth nothing. Against
the trivial predictor the whole interval of the loss must lie below 0; against `gate.minimum` the worse end of the
candidate's interval counts. Size and latency: the candidate's bytes over the teacher's, and the median over the
rounds of its time over the teacher's, against the gate's limits; a limit of None has no rule.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from understudy.evaluate.advice import advice
from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.cautions import cautions, meaning
from understudy.evaluate.contents import Confusion, Verdict, Worth
from understudy.evaluate.fields import mapping, number
from understudy.evaluate.headline import headline
from understudy.evaluate.limits import limits
from understudy.evaluate.metrics import METRICS
from understudy.evaluate.quality import (
    TRIVIAL,
    Loss,
    Rule,
    above_minimum,
    against_control,
    against_model,
    against_trivial,
    failed,
    loss,
)
from understudy.evaluate.recovered import recovered
from understudy.evaluate.statistics import Bootstrap, Difference
from understudy.evaluate.steadiness import is_ratio_reliable, on_latencies
from understudy.evaluate.wear import judged_so_far, worn
from understudy.recipe import Candidate, Gate, MetricName, Objectives
from understudy.recipe.roles import CHAMPION, CONTROL, STUDENT, TEACHER


@dataclass(frozen=True)
class Circumstances:
    """Inputs of the verdict besides the measurements."""

    champion_problem: str = ""
    """The reason why a possible champion could not be measured; it fails the rule."""
    training_losses: Mapping[str, float] = field(default_factory=dict)
    """By role, in nats per prediction."""
    steps: Mapping[str, int] = field(default_factory=dict)
    """Each model's training steps, by role."""
    objectives: Objectives = ()
    """The student's objectives."""
    candidate: Candidate = STUDENT
    """The role of the model to register."""
    foreign: str = ""
    """The champion's name if understudy did not train it: it has per-example results, and no measures."""
    copies: str = ""
    """The caution about copies in the test split, if there is one."""
    rejections: str = ""
    """The caution about earlier rejections by other rules, if there is one."""
    judged: int = 0
    """The candidate's number among those judged on this test split for one registered model; 0 if not counted."""


ORDINARY = Circumstances()


def decide(
    measures: Mapping[str, Any],
    per_example: Mapping[str, Any],
    gate: Gate,
    metric: MetricName,
    circumstances: Circumstances = ORDINARY,
) -> Verdict:
    """The verdict: approved if every rule passed. `cautions` are warnings to read first, and fail nothing.

    Values that measures and per_example lack raise no error: the rules that need them fail and report them.
    """
    models, candidate = mapping(measures.get("models")), circumstances.candidate
    compared_roles = [TEACHER, *([CHAMPION] if _has(CHAMPION, models, per_example) else [])]
    control_roles = [CONTROL] if _has(CONTROL, models, per_example) or candidate == CONTROL else []
    bootstrap = Bootstrap(per_example, [STUDENT, *compared_roles, *control_roles, TRIVIAL])
    losses, quality = _against_models(bootstrap, metric, gate, compared_roles, candidate)
    measured_roles = [role for role in compared_roles if role != CHAMPION or not circumstances.foreign]
    rules = [_measured(measures, bootstrap, metric, [STUDENT, *measured_roles, *control_roles]), *quality]
    if circumstances.champion_problem:
        rules.append(failed("quality-against-champion", gate.margin, circumstances.champion_problem))
    if control_roles and candidate == STUDENT:
        rules.append(against_control(bootstrap, metric, gate))
    rules += [*_floor(bootstrap, metric, gate, candidate), *limits(models, gate, candidate)]
    control = _against_control(bootstrap, metric, gate) if control_roles else None
    is_reliable = is_ratio_reliable(models, candidate)
    warnings = cautions(
        bootstrap,
        metric,
        gate.confidence,
        control,
        circumstances.training_losses,
        measures.get("confusion"),
        circumstances.steps,
        candidate,
    )
    return {
        "approved": all(rule.passed for rule in rules),
        "candidate": candidate,
        "reference": str(measures.get("reference", TEACHER)),
        "headline": headline(
            rules, metric, gate.margin, candidate, compared=CHAMPION in losses, is_latency_reliable=is_reliable
        ),
        "cautions": [*_on_the_test(circumstances), *warnings, *_around(models, gate, circumstances)],
        "advice": _advice(bootstrap, metric, gate, circumstances, quality, measures.get("confusion")),
        "judged": judged_so_far(circumstances.judged),
        "control": _worth(control, metric, gate) if control else None,
        "recovered": recovered(bootstrap, metric, gate.confidence) if control_roles else None,
        "metric": metric,
        "confidence": gate.confidence,
        "margin": gate.margin,
        "smallest_detectable": losses[TEACHER].smallest if TEACHER in losses else None,
        "rules": [rule.outcome for rule in rules],
    }


def _on_the_test(circumstances: Circumstances) -> Iterator[str]:
    """The gravest cautions: those that put the verdict itself in doubt."""
    yield from filter(None, (circumstances.rejections, circumstances.copies))


def _around(models: Mapping[str, Any], gate: Gate, circumstances: Circumstances) -> Iterator[str]:
    """Cautions about the champion, the test split and the machine."""
    if circumstances.foreign:
        yield (
            f"The champion, {circumstances.foreign}, was registered by other means: it was compared by its answers to "
            "this test split, and its size and speed were not measured."
        )
    yield from worn(circumstances.judged, gate.confidence)
    yield from filter(None, [on_latencies(models, circumstances.candidate)])


def _advice(
    bootstrap: Bootstrap,
    metric: MetricName,
    gate: Gate,
    circumstances: Circumstances,
    quality: list[Rule],
    confusion: Confusion | None,
) -> list[str]:
    """What to change about a student; none for a control, whose training has no teacher."""
    if circumstances.candidate != STUDENT:
        return []
    against_teacher = next((rule for rule in quality if rule.rule == f"quality-against-{TEACHER}"), None)
    return advice(bootstrap, metric, gate.confidence, circumstances.objectives, against_teacher, confusion)


def _has(role: str, models: Mapping[str, Any], per_example: Mapping[str, Any]) -> bool:
    """Whether either file has such a model: one that is in only one of them fails the gate."""
    return role in models or any(str(name).startswith(f"{role}.") for name in per_example)


def _against_models(
    bootstrap: Bootstrap, metric: MetricName, gate: Gate, roles: list[str], candidate: Candidate
) -> tuple[dict[str, Loss], list[Rule]]:
    losses: dict[str, Loss] = {}
    rules = []
    for role in roles:
        try:
            losses[role] = loss(bootstrap, metric, role, gate.confidence, candidate)
            rules.append(against_model(bootstrap, losses[role], metric, role, gate, candidate))
        except Unmeasured as error:
            rules.append(failed(f"quality-against-{role}", gate.margin, str(error)))
    return losses, rules


def _floor(bootstrap: Bootstrap, metric: MetricName, gate: Gate, candidate: Candidate) -> Iterator[Rule]:
    yield against_trivial(bootstrap, metric, gate, candidate)
    if gate.minimum is not None:
        yield above_minimum(bootstrap, metric, gate.minimum, gate.confidence, candidate)


def _against_control(bootstrap: Bootstrap, metric: MetricName, gate: Gate) -> Difference | None:
    """The worth of the teacher: the student against the same model trained without it."""
    try:
        difference = bootstrap.difference(metric, STUDENT, CONTROL, gate.confidence)
    except Unmeasured:
        return None
    return difference if math.isfinite(difference.low) and math.isfinite(difference.high) else None


def _worth(difference: Difference, metric: MetricName, gate: Gate) -> Worth:
    """The teacher's worth: the difference of student and control, with its interval."""
    form = METRICS[metric]
    observed, low, high = (
        form.show_difference(number) for number in (difference.observed, difference.low, difference.high)
    )
    conclusion = meaning(difference, form)
    detail = f"student minus control: {observed}, {100 * gate.confidence:g} % interval {low} to {high}: {conclusion}"
    return {
        "observed": difference.observed,
        "interval": (difference.low, difference.high),
        "meaning": conclusion,
        "detail": detail,
    }


def _measured(measures: Mapping[str, Any], bootstrap: Bootstrap, metric: MetricName, roles: list[str]) -> Rule:
    """Whether measures.json and the per-example results agree on every model that is compared."""
    models = mapping(measures.get("models"))
    faults = []
    if measures.get("examples") != bootstrap.examples:
        faults.append(
            f"measures.json is about {measures.get('examples')} examples, per_example.npz {bootstrap.examples}"
        )
    for role in roles:
        stated = number(mapping(mapping(models.get(role)).get("metrics")).get(metric))
        try:
            recomputed = bootstrap.value(metric, role)
        except Unmeasured as error:
            faults.append(str(error))
            continue
        if stated is None:
            faults.append(f"measures.json has no {METRICS[metric].title} of the {role}")
        elif not math.isclose(stated, recomputed, rel_tol=1e-6, abs_tol=1e-9):
            faults.append(
                f"the {role}'s {metric} is {stated} in measures.json, {recomputed} by its per-example results"
            )
    if faults:
        return failed("measured", None, "; ".join(dict.fromkeys(faults)))
    title = METRICS[metric].heading
    detail = f"{title} of {', '.join(roles)} was measured on the same {bootstrap.examples:,} examples."
    return Rule("measured", passed=True, detail=detail)
