"""The verdict in one line: an approval comes with its margin.

Any verdict comes with a note if there was no champion, or if the compared latencies are not reliable.
"""

from collections.abc import Sequence

from understudy.evaluate.metrics import METRICS
from understudy.evaluate.quality import Rule
from understudy.recipe import Candidate, MetricName
from understudy.recipe.roles import STUDENT

UNRELIABLE = "latency not reliable: it varies too much"
UNCOMPARED = "not compared with what you serve: no version has the alias champion"


def headline(
    rules: Sequence[Rule],
    metric: MetricName,
    margin: float,
    candidate: Candidate,
    *,
    compared: bool,
    is_latency_reliable: bool = True,
) -> str:
    """The decision in one line.

    Args:
        rules: the outcomes of all rules.
        metric: the gate's.
        margin: the gate's.
        candidate: the role of the judged model.
        compared: whether the candidate was compared with a champion.
        is_latency_reliable: whether the latencies that a rule compares are steady.
    """
    form, names = METRICS[metric], [rule.rule for rule in rules]
    failing = [rule.rule for rule in rules if not rule.passed]
    prefix = "" if candidate == STUDENT else "control, trained without the teacher: "
    if failing:
        decided = f"rejected by {', '.join(failing)}"
    else:
        size = f"{100 * margin:g} {'%' if form.relative or not form.style.endswith('%') else 'points'}"
        decided = f"approved: within {size} of its teacher{' and of the champion' if compared else ''} by {form.title}"
    notes = [] if is_latency_reliable or "latency" not in names else [UNRELIABLE]
    notes += [] if compared or "quality-against-champion" in names else [UNCOMPARED]
    return "; ".join([f"{prefix}{decided}", *notes])
