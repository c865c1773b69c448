"""The recovered share: the part of the gap between control and teacher that the student has closed.

The control is the student without the teacher. The share is (student - control) / (teacher - control): 0 if the
teacher was worth nothing, 1 if the student is as good as the teacher. All metrics of the gate are functions of a
ratio of sums whose denominator is the same for all models. So the share is a ratio of two sums of paired differences;
its interval is Fieller's. For perplexity it is the share in nats.
"""

from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.contents import Recovered
from understudy.evaluate.metrics import METRICS
from understudy.evaluate.statistics import Bootstrap
from understudy.recipe import MetricName
from understudy.recipe.roles import CONTROL, STUDENT, TEACHER

NO_GAP = "there was no gap to recover: the teacher is not known to be better than the control"


def recovered(bootstrap: Bootstrap, metric: MetricName, confidence: float) -> Recovered | None:
    """The share of the gap that the student recovered; None if one of the three models was not measured.

    Args:
        bootstrap: the bootstrap of teacher, student and control.
        metric: the gate's.
        confidence: level of the two-sided interval.
    """
    try:
        gap = bootstrap.difference(metric, TEACHER, CONTROL, confidence)
        share = bootstrap.share(STUDENT, CONTROL, TEACHER, metric, confidence)
    except Unmeasured:
        return None
    better = gap.low > 0 if METRICS[metric].higher_is_better else gap.high < 0
    if not better or gap.few or share is None:
        return {"share": None, "interval": None, "detail": NO_GAP}
    value, (low, high) = share
    percent = f"{100 * value:.0f} %"
    ends = f"{100 * confidence:g} % interval {100 * low:.0f} % to {100 * high:.0f} %"
    detail = f"the student recovered {percent} of the gap between control and teacher ({ends})"
    return {"share": value, "interval": (low, high), "detail": detail.replace("-", "−")}
