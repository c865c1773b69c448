"""The gate: may the student step in? A verdict, rule by rule; what was not measured was not passed.

Quality, against the teacher and, where there is one, the champion: the loss is the student's shortfall (accuracy:
other - student; the rest: student - other), absolute for accuracy, a share of the other's value for the rest. Its
two-sided interval at `gate.confidence` is the metric's (intervals.py), and its upper end must not exceed
`gate.margin`. As only that end is compared, a student whose true loss is the margin passes with a probability of
(1 - confidence) / 2: 2.5 % at a confidence of 95 %, a one-sided test at 97.5 %; what benchmarks/gate_rates.py
measures is in docs/benchmarks.md. Too few examples to tell fail the rule.

Against the trivial predictor the whole interval of the loss must lie below 0; against `gate.minimum` the worse end
of the student's own interval counts. Size and latency: the student's bytes over the teacher's, and the median over the
rounds of its time over the teacher's, against the gate's limits; a limit of None has no rule.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from understudy.evaluate.cautions import cautions, meaning
from understudy.evaluate.contents import Verdict, Worth
from understudy.evaluate.metrics import METRICS, Unmeasured
from understudy.evaluate.quality import TRIVIAL, Loss, Rule, above_minimum, against_model, against_trivial, failed, loss
from understudy.evaluate.statistics import Bootstrap, Difference
from understudy.recipe import Gate, MetricName


def decide(
    measures: Mapping[str, Any],
    per_example: Mapping[str, Any],
    gate: Gate,
    metric: MetricName,
    champion_problem: str = "",
    training_losses: Mapping[str, float] | None = None,
    steps: Mapping[str, int] | None = None,
) -> Verdict:
    """The verdict: approved when every rule passed. `cautions` are sentences to be read first, and fail nothing.

    A `champion_problem` says why a champion that may exist could not be measured; it fails the rule.

    Never raises for what measures and per_example lack: the rules that need it fail and say so.
    """
    models = _mapping(measures.get("models"))
    others = ["teacher", "champion"] if _has_champion(models, per_example) else ["teacher"]
    extra = ["control"] if "control" in models else []
    bootstrap = Bootstrap(per_example, ["student", *others, *extra, TRIVIAL])
    losses, quality = _against_models(bootstrap, metric, gate, others)
    rules = [_measured(measures, bootstrap, metric, ["student", *others]), *quality]
    if champion_problem:
        rules.append(failed("quality-against-champion", gate.margin, champion_problem))
    rules += [*_floor(bootstrap, metric, gate), *_limits(models, gate)]
    control = _against_control(bootstrap, metric, gate) if extra else None
    return {
        "approved": all(rule.passed for rule in rules),
        "cautions": cautions(
            bootstrap, metric, gate.confidence, control, training_losses or {}, measures.get("confusion"), steps
        ),
        "control": _worth(control, metric, gate) if control else None,
        "metric": metric,
        "confidence": gate.confidence,
        "margin": gate.margin,
        "smallest_detectable": losses["teacher"].smallest if "teacher" in losses else None,
        "rules": [rule.told for rule in rules],
    }


def _has_champion(models: Mapping[str, Any], per_example: Mapping[str, Any]) -> bool:
    """Whether either file knows a champion: one that only half of the evidence has fails the gate."""
    return "champion" in models or any(str(name).startswith("champion.") for name in per_example)


def _against_models(
    bootstrap: Bootstrap, metric: MetricName, gate: Gate, others: list[str]
) -> tuple[dict[str, Loss], list[Rule]]:
    losses: dict[str, Loss] = {}
    rules = []
    for other in others:
        try:
            losses[other] = loss(bootstrap, metric, other, gate.confidence)
            rules.append(against_model(bootstrap, losses[other], metric, other, gate))
        except Unmeasured as error:
            rules.append(failed(f"quality-against-{other}", gate.margin, str(error)))
    return losses, rules


def _floor(bootstrap: Bootstrap, metric: MetricName, gate: Gate) -> Iterator[Rule]:
    yield against_trivial(bootstrap, metric, gate)
    if gate.minimum is not None:
        yield above_minimum(bootstrap, metric, gate.minimum, gate.confidence)


def _limits(models: Mapping[str, Any], gate: Gate) -> Iterator[Rule]:
    if gate.max_size_ratio is not None:
        yield _size(models, gate.max_size_ratio)
    if gate.max_latency_ratio is not None:
        yield _latency(models, gate.max_latency_ratio)


def _against_control(bootstrap: Bootstrap, metric: MetricName, gate: Gate) -> Difference | None:
    """The student against the same student trained without the teacher: no rule, but what the teacher was worth."""
    try:
        found = bootstrap.difference(metric, "student", "control", gate.confidence)
    except Unmeasured:
        return None
    return found if math.isfinite(found.low) and math.isfinite(found.high) else None


def _worth(found: Difference, metric: MetricName, gate: Gate) -> Worth:
    form = METRICS[metric]
    observed, low, high = (form.show_difference(number) for number in (found.observed, found.low, found.high))
    what = meaning(found, form)
    detail = f"student minus control: {observed}, {100 * gate.confidence:g} % interval {low} to {high}: {what}"
    return {"observed": found.observed, "interval": (found.low, found.high), "meaning": what, "detail": detail}


def _measured(measures: Mapping[str, Any], bootstrap: Bootstrap, metric: MetricName, roles: list[str]) -> Rule:
    """Whether measures.json and the per-example results say the same about every model that is compared."""
    models = _mapping(measures.get("models"))
    faults = []
    if measures.get("examples") != bootstrap.examples:
        faults.append(
            f"measures.json is about {measures.get('examples')} examples, per_example.npz {bootstrap.examples}"
        )
    for role in roles:
        stated = _number(_mapping(_mapping(models.get(role)).get("metrics")).get(metric))
        try:
            found = bootstrap.value(metric, role)
        except Unmeasured as error:
            faults.append(str(error))
            continue
        if stated is None:
            faults.append(f"measures.json has no {METRICS[metric].title} of the {role}")
        elif not math.isclose(stated, found, rel_tol=1e-6, abs_tol=1e-9):
            faults.append(f"the {role}'s {metric} is {stated} in measures.json, {found} by its per-example results")
    if faults:
        return failed("measured", None, "; ".join(dict.fromkeys(faults)))
    title = METRICS[metric].title.capitalize()
    detail = f"{title} of {', '.join(roles)} was measured on the same {bootstrap.examples:,} examples."
    return Rule("measured", passed=True, detail=detail)


def _size(models: Mapping[str, Any], most: float) -> Rule:
    student, teacher = (_number(_mapping(models.get(role)).get("bytes")) for role in ("student", "teacher"))
    if not student or not teacher:
        return failed("size", most, f"the size of the {_missing(student, teacher)} was not measured")
    sizes = f"student {student / 1e6:,.4g} MB, teacher {teacher / 1e6:,.4g} MB"
    return _ratio("size", student / teacher, most, f"{sizes}; the ratio")


def _latency(models: Mapping[str, Any], most: float) -> Rule:
    times = [_mapping(_mapping(models.get(role)).get("latency")) for role in ("student", "teacher")]
    student, teacher = (_number(time.get("median_ms")) for time in times)
    ratio = _number(times[0].get("ratio_to_teacher"))
    if not student or not teacher:
        return failed("latency", most, f"the latency of the {_missing(student, teacher)} was not measured")
    if not ratio:
        return failed("latency", most, "the student's latency was not compared with the teacher's")
    medians = f"student {student:,.4g} ms, teacher {teacher:,.4g} ms"
    return _ratio("latency", ratio, most, f"{medians}; the ratio, as the median of all rounds,")


def _missing(student: float | None, teacher: float | None) -> str:
    return " and ".join(role for role, value in (("student", student), ("teacher", teacher)) if not value)


def _ratio(rule: str, ratio: float, most: float, found: str) -> Rule:
    passed = ratio <= most
    within = "within" if passed else "over"
    detail = f"{rule.capitalize()}: {found} {ratio:.3f} is {within} the limit of {most:.3f}."
    return Rule(rule, passed, detail, observed=ratio, threshold=most)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    """A finite number, not negative; anything else was not measured."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
