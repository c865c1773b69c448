"""The breakdown of recorded steps' time, from a trace of torch.profiler (Chrome's format).

Each moment of a step belongs to one kind, so the kinds add up to the step: to communication while data is sent and
nothing is computed, otherwise to the innermost mark around it, and to `other` if there is none.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from understudy.train.marks import MARK
from understudy.train.profile import KINDS, Kind

STEP = "step"
"""The mark around a whole step."""
MICROSECOND = 1e-6

Event = dict[str, Any]
Spans = list[tuple[float, float]]
"""Start and end in microseconds; sorted and disjoint."""


class StepTime(NamedTuple):
    """Mean seconds of a step."""

    seconds: float
    kinds: dict[Kind, float]
    sent: float
    """Communication, overlapped with computation or not."""


def step_time(events: Sequence[Event]) -> StepTime:
    """The mean time of a trace's steps, by kind.

    Args:
        events: the trace's events; `dur` and `ts` are microseconds.

    Raises:
        ValueError: the trace has no step.
    """
    timed = [event for event in events if event.get("ph") == "X"]
    # The GPU's part of a trace has spans with the same names.
    marks = [event for event in timed if event["name"].startswith(MARK) and event.get("cat") == "user_annotation"]
    steps = [event for event in marks if event["name"] == MARK + STEP]
    if not steps:
        raise ValueError("the trace has no step")
    sent, computed = _sent_and_computed(timed)
    exposed = difference(sent, computed)
    kinds, in_all = dict.fromkeys(KINDS, 0.0), 0.0
    for step in steps:
        for kind, start, end in _segments(step, [event for event in marks if _is_inside(event, step)]):
            waited = length(exposed, start, end)
            kinds["communication"] += waited
            kinds[kind] += end - start - waited
        in_all += length(sent, *_span(step))
    total = sum(step["dur"] for step in steps)
    share = MICROSECOND / len(steps)
    return StepTime(total * share, {kind: value * share for kind, value in kinds.items()}, in_all * share)


def _sent_and_computed(timed: Sequence[Event]) -> tuple[Spans, Spans]:
    """The spans of communication and of computation: the GPU's, if there is one."""
    kernels = [event for event in timed if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if kernels:
        sends = [event for event in kernels if event["name"].startswith("nccl")]
        computes = [event for event in kernels if not event["name"].startswith("nccl")]
    else:
        sends = [event for event in timed if event["name"].startswith("gloo:")]
        computes = list(_innermost(timed))
    return union(map(_span, sends)), union(map(_span, computes))


def _innermost(timed: Sequence[Event]) -> Iterator[Event]:
    """Operators that call no others: a caller may wait for communication in between."""
    last: dict[Any, Event] = {}
    for event in sorted(timed, key=lambda event: (event["ts"], -event["dur"])):
        previous = last.get(event["tid"])
        if previous and not _is_inside(event, previous) and _computes(previous):
            yield previous
        last[event["tid"]] = event
    yield from filter(_computes, last.values())


def _computes(event: Event) -> bool:
    return event.get("cat") == "cpu_op" and not event["name"].startswith(("c10d::", "record_param_comms"))


def _segments(step: Event, marks: Iterable[Event]) -> Iterator[tuple[Kind, float, float]]:
    """The step in segments, each with the kind of its innermost mark."""
    begin, end = _span(step)
    open_marks: list[tuple[Kind, float]] = [("other", end)]
    for mark in sorted(marks, key=lambda event: (event["ts"], -event["dur"])):
        start, end = _span(mark)
        while open_marks[-1][1] <= start:
            kind, closed = open_marks.pop()
            yield kind, begin, closed
            begin = closed
        yield open_marks[-1][0], begin, start
        begin = start
        kind = mark["name"].removeprefix(MARK)
        open_marks.append((kind if kind in KINDS else open_marks[-1][0], min(end, open_marks[-1][1])))
    for kind, closed in reversed(open_marks):
        yield kind, begin, closed
        begin = closed


def _is_inside(event: Event, outer: Event) -> bool:
    (start, _), (first, last) = _span(event), _span(outer)
    return event["tid"] == outer["tid"] and event is not outer and first <= start < last


def _span(event: Event) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


def union(spans: Iterable[tuple[float, float]]) -> Spans:
    """The union of some spans."""
    merged: Spans = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def difference(spans: Spans, excluded: Spans) -> Spans:
    """The parts of some spans that are in none of the others."""
    remainder: Spans = []
    ends = [end for _, end in excluded]
    for start, end in spans:
        position = start
        for first, last in excluded[bisect_left(ends, start) :]:
            if first >= end:
                break
            if first > position:
                remainder.append((position, first))
            position = last
        if position < end:
            remainder.append((position, end))
    return remainder


def length(spans: Spans, start: float, end: float) -> float:
    """The time between two moments that is in spans."""
    total = 0.0
    for first, last in spans[bisect_left(spans, start, key=lambda span: span[1]) :]:
        if first >= end:
            break
        total += min(last, end) - max(first, start)
    return total
