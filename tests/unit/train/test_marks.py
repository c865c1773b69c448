"""Marks are spans of a trace, and nothing where none is recorded."""

from torch.profiler import ProfilerActivity, profile

from understudy.train.marks import NOTHING, mark


def test_marks_are_there_while_a_profiler_records_and_at_no_other_time() -> None:
    assert mark("forward") is NOTHING
    with profile(activities=[ProfilerActivity.CPU]) as profiler, mark("forward"):
        pass
    assert "understudy: forward" in {event.name for event in profiler.events() or ()}
    assert mark("forward") is NOTHING
