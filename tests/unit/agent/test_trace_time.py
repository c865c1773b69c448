"""Where the time of a step went, on traces written by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.agent.trace_time import Event, difference, length, step_time, union
from understudy.train.profile import KINDS

MAIN, SENDER, GPU = 1, 2, 7


def span(name: str, start: float, end: float, cat: str = "cpu_op", tid: int = MAIN) -> Event:
    return {"ph": "X", "name": name, "cat": cat, "ts": 1000 + start, "dur": end - start, "tid": tid}


def mark(kind: str, start: float, end: float) -> Event:
    return span(f"understudy: {kind}", start, end, "user_annotation")


STEP = [
    mark("step", 0, 1000),
    mark("data", 10, 60),
    mark("forward", 100, 400),
    mark("teacher", 150, 250),
    mark("backward", 400, 800),
    mark("optimizer", 800, 900),
]


def milliseconds(events: list[Event]) -> dict[str, float]:
    return {kind: round(1000 * value, 6) for kind, value in step_time(events).kinds.items() if value}


def test_the_innermost_mark_counts_and_the_kinds_add_up_to_the_step() -> None:
    expected = {"data": 0.05, "teacher": 0.1, "forward": 0.2, "backward": 0.4, "optimizer": 0.1, "other": 0.15}
    assert milliseconds(STEP) == expected
    times = step_time(STEP)
    assert times.seconds == pytest.approx(0.001)
    assert sum(times.kinds.values()) == pytest.approx(times.seconds)
    assert list(times.kinds) == list(KINDS)


def test_sending_without_computing_is_communication() -> None:
    """From 500 to 900 something is sent, in two pieces; from 450 to 600 and from 650 to 700 an operator computes."""
    sending = [
        span("gloo:all_reduce", 500, 750, "user_annotation", SENDER),
        span("gloo:all_reduce", 700, 900, "user_annotation", SENDER + 1),
        span("aten::mm", 450, 600),
        span("aten::mm", 650, 700),
    ]
    times = step_time([*STEP, *sending])
    assert 1000 * times.sent == pytest.approx(0.4)
    kinds = milliseconds([*STEP, *sending])
    assert kinds["communication"] == pytest.approx(0.25)  # 600 to 650, 700 to 900
    assert kinds["backward"] == pytest.approx(0.25)
    assert "optimizer" not in kinds


def test_an_operator_that_only_waits_for_its_calls_computes_nothing() -> None:
    waiting = [
        span("gloo:all_gather", 500, 700, "user_annotation", SENDER),
        span("autograd::engine::evaluate_function", 450, 750),
        span("c10d::_allgather_base_", 500, 520),
        span("aten::mm", 700, 740),
    ]
    assert milliseconds([*STEP, *waiting])["communication"] == pytest.approx(0.2)


def test_on_a_gpu_its_own_kernels_count() -> None:
    """The CPU has only asked for them; and the GPU's part of a trace has spans of the same names."""
    kernels = [
        span("ncclDevKernel_AllReduce", 500, 700, "kernel", GPU),
        span("gemm", 400, 600, "kernel", GPU + 1),
        span("aten::mm", 650, 700),
        span("understudy: step", 5, 990, "gpu_user_annotation", GPU),
    ]
    times = step_time([*STEP, *kernels])
    assert times.seconds == pytest.approx(0.001)
    assert times.kinds["communication"] == pytest.approx(100e-6)
    assert times.sent == pytest.approx(200e-6)


def test_several_steps_are_a_mean() -> None:
    second = [{**event, "ts": event["ts"] + 5000} for event in STEP]
    assert step_time([*STEP, *second]).kinds == pytest.approx(step_time(STEP).kinds)


def test_a_trace_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="no step"):
        step_time([span("aten::mm", 0, 1)])


moments = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (float(min(pair)), float(max(pair))))
many = st.lists(moments, max_size=8)


def covered(spans: Any) -> set[int]:
    """Which of the moments from n to n + 1 lie in spans."""
    return {moment for start, end in spans for moment in range(int(start), int(end))}


@given(many, many, moments)
def test_spans_behave_as_sets_of_moments(left: Any, right: Any, window: tuple[float, float]) -> None:
    joined, remainder = union(left), difference(union(left), union(right))
    assert covered(joined) == covered(left)
    assert covered(remainder) == covered(left) - covered(right)
    assert length(joined, *window) == len(covered(left) & covered([window]))
