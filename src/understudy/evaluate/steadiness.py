"""Steadiness of latencies: on a machine that does other work they vary, and so does the ratio of two of them.

A ratio of medians hides it: a teacher whose calls took 1.15 to 28.5 ms made a student of 86 % of its time, by the
fastest calls, one of 14.5 %.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from understudy.evaluate.fields import mapping, number
from understudy.evaluate.metrics import three_digits
from understudy.recipe.roles import TEACHER

UNSTEADY = 3.0
"""Limit of the 95th percentile over the minimum of latencies; 1.1 to 2 on two idle cores, 84 beside other work."""


class Range(NamedTuple):
    """The latencies of a model that vary too much."""

    role: str
    fastest_ms: float
    slow_ms: float
    """The 95th percentile."""

    @property
    def factor(self) -> float:
        """The slow calls' time over that of the fastest."""
        return self.slow_ms / self.fastest_ms


def unsteady(models: Mapping[str, Any]) -> list[Range]:
    """The models whose latencies vary as on a machine that does other work, the noisiest first."""
    ranges = [
        Range(role, fastest, slow)
        for role, model in models.items()
        for latency in [mapping(mapping(model).get("latency"))]
        if (fastest := number(latency.get("min_ms"))) and (slow := number(latency.get("p95_ms")))
    ]
    return sorted((one for one in ranges if one.factor >= UNSTEADY), key=lambda one: -one.factor)


def is_ratio_reliable(models: Mapping[str, Any], candidate: str) -> bool:
    """Whether neither the candidate's latencies nor the teacher's vary too much."""
    return not {candidate, TEACHER} & {one.role for one in unsteady(models)}


def on_latencies(models: Mapping[str, Any], candidate: str) -> str:
    """A caution that names the models whose latencies vary, and whether the ratio depends on them; empty if none do."""
    ranges = unsteady(models)
    if not ranges:
        return ""
    named = ", ".join(
        f"the {one.role}'s {'are ' if one is ranges[0] else ''}from {three_digits(one.fastest_ms)} to "
        f"{three_digits(one.slow_ms)} ms"
        for one in ranges
    )
    return (
        f"Latencies vary too much to be reliable: {named} (minimum to 95th percentile). {_on_ratio(models, candidate)} "
        "Measure on a machine that does nothing else."
    )


def _on_ratio(models: Mapping[str, Any], candidate: str) -> str:
    if is_ratio_reliable(models, candidate):
        return f"The ratio of the {candidate}'s to the teacher's does not depend on them."
    mine, teachers = (mapping(mapping(models.get(role)).get("latency")) for role in (candidate, TEACHER))
    ratio = number(mine.get("ratio_to_teacher"))
    fastest, teachers_fastest = number(mine.get("min_ms")), number(teachers.get("min_ms"))
    sentence = f"Nor is the ratio of the {candidate}'s to the teacher's"
    if not (ratio and fastest and teachers_fastest):
        return f"{sentence}."
    by_all, by_fastest = (three_digits(100 * share) for share in (ratio, fastest / teachers_fastest))
    return f"{sentence}: {by_all} % by all calls, {by_fastest} % by the fastest."
