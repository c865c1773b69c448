"""The rules about the candidate's size and latency: its bytes and time over the teacher's, within the gate's limits."""

from collections.abc import Iterator, Mapping
from typing import Any

from understudy.evaluate.fields import mapping, number
from understudy.evaluate.quality import Rule, failed
from understudy.evaluate.steadiness import is_ratio_reliable
from understudy.recipe import Candidate, Gate
from understudy.recipe.roles import TEACHER


def limits(models: Mapping[str, Any], gate: Gate, candidate: Candidate) -> Iterator[Rule]:
    """The outcomes of the rules that the gate has limits for."""
    if gate.max_size_ratio is not None:
        yield _size(models, gate.max_size_ratio, candidate)
    if gate.max_latency_ratio is not None:
        yield _latency(models, gate.max_latency_ratio, candidate)


def _size(models: Mapping[str, Any], limit: float, candidate: Candidate) -> Rule:
    candidate_bytes, teacher_bytes = (number(mapping(models.get(role)).get("bytes")) for role in (candidate, TEACHER))
    if not candidate_bytes or not teacher_bytes:
        return failed(
            "size", limit, f"the size of the {_missing(candidate, candidate_bytes, teacher_bytes)} was not measured"
        )
    sizes = f"{candidate} {candidate_bytes / 1e6:,.4g} MB, teacher {teacher_bytes / 1e6:,.4g} MB"
    return _ratio("size", candidate_bytes / teacher_bytes, limit, f"{sizes}; the ratio")


def _latency(models: Mapping[str, Any], limit: float, candidate: Candidate) -> Rule:
    times = [mapping(mapping(models.get(role)).get("latency")) for role in (candidate, TEACHER)]
    candidate_ms, teacher_ms = (number(time.get("median_ms")) for time in times)
    ratio = number(times[0].get("ratio_to_teacher"))
    if not candidate_ms or not teacher_ms:
        return failed(
            "latency", limit, f"the latency of the {_missing(candidate, candidate_ms, teacher_ms)} was not measured"
        )
    if not ratio:
        return failed("latency", limit, f"the {candidate}'s latency was not compared with the teacher's")
    medians = f"{candidate} {candidate_ms:,.4g} ms, teacher {teacher_ms:,.4g} ms"
    suffix = "" if is_ratio_reliable(models, candidate) else " It is not reliable, since the latencies vary too much."
    return _ratio("latency", ratio, limit, f"{medians}; the ratio, as the median of all rounds,", suffix)


def _missing(candidate: Candidate, candidate_value: float | None, teacher_value: float | None) -> str:
    return " and ".join(role for role, value in ((candidate, candidate_value), (TEACHER, teacher_value)) if not value)


def _ratio(rule: str, ratio: float, limit: float, description: str, suffix: str = "") -> Rule:
    passed = ratio <= limit
    position = "within" if passed else "over"
    detail = f"{rule.capitalize()}: {description} {ratio:.3f} is {position} the limit of {limit:.3f}.{suffix}"
    return Rule(rule, passed, detail, observed=ratio, threshold=limit)
