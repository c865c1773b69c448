"""The display of a run's steps while it goes on; the display of whole runs is tested in tests/pipeline."""

import io
from dataclasses import replace

from rich.console import Console
from rich.progress import Progress

from understudy.cli.display import Bars, Lines
from understudy.store import StepState

STATE = StepState("ingest", "reused", digest="0123456789abcdef", started=1, ended=3.5)


def shown(*moments: list[StepState], seconds: float = 0) -> list[str]:
    text = io.StringIO()
    lines = Lines(Console(file=text, width=200), seconds=seconds)
    for states in moments:
        lines.update(states)
    return text.getvalue().splitlines()


def test_a_result_of_another_store_says_so() -> None:
    assert shown([STATE]) == ["ingest    reused      2.5 s  0123456789ab"]
    fetched = replace(STATE, detail="from the remote cache")
    assert shown([fetched]) == ["ingest    reused      2.5 s  0123456789ab  from the remote cache"]


def test_a_remark_on_a_result_stands_in_its_line() -> None:
    remark = "evidence recorded; no version, since the gate rejected the student"
    done = StepState("register", "done", digest="0123456789abcdef", detail=remark, started=1, ended=3.5)
    assert shown([done]) == [f"register  done        2.5 s  0123456789ab  {remark}"]


def test_why_a_step_failed_is_left_for_the_end() -> None:
    working = StepState("ingest", "running", done=3, total=10, unit="records", detail="reading")
    failed = StepState("ingest", "failed", detail="a.png is no image", started=1, ended=2)
    assert shown([working], [failed]) == ["ingest    running  3/10 records  reading", "ingest    failed      1.0 s"]


def test_that_a_step_resumes_is_told_once_though_its_progress_soon_hides_it() -> None:
    line = "teacher   running  resuming from step 98"
    begun, resumed = StepState("teacher", "running"), StepState("teacher", "running", resumed=98)
    advanced = replace(resumed, done=120, total=255, unit="steps")
    ended = replace(resumed, state="done", digest="0123456789abcdef", started=1, ended=3.5)
    rest = ["teacher   running  120/255 steps", "teacher   done        2.5 s  0123456789ab"]
    assert shown([begun], [replace(resumed, detail="resuming from step 98")], [advanced], [ended]) == [
        "teacher   running",
        line,
        *rest,
    ]
    assert shown([begun], [advanced], [advanced], [ended], seconds=60) == ["teacher   running", line, rest[1]]
    assert shown([begun], [ended]) == ["teacher   running", line, rest[1]]


def test_bars_tell_once_that_a_step_resumes() -> None:
    text = io.StringIO()
    console = Console(file=text, width=200, force_terminal=True, color_system=None)
    with Progress(console=console) as progress:
        bars = Bars(progress)
        for done in (98, 120):
            bars.update([StepState("teacher", "running", done=done, total=255, resumed=98)])
    assert text.getvalue().count("teacher   running  resuming from step 98") == 1


FAILED = StepState("control", "failed", detail="student.train.lora: no layer\x1b is called [red]q", started=1, ended=2)
WORKING = StepState("teacher", "running", done=1, total=10, unit="steps")


def test_why_a_step_failed_is_said_at_once_where_others_go_on_and_once() -> None:
    lines = shown([FAILED], [FAILED, WORKING], [FAILED, replace(WORKING, state="waiting")])
    why = r"control failed: student.train.lora: no layer\x1b is called [red]q"
    assert [line for line in lines if "lora" in line] == [why]
    assert lines.index(why) == 2


def test_bars_say_it_too() -> None:
    text = io.StringIO()
    console = Console(file=text, width=200, force_terminal=True, color_system=None)
    with Progress(console=console) as progress:
        bars = Bars(progress)
        for _ in range(2):
            bars.update([FAILED, WORKING])
    assert text.getvalue().count("control failed: student.train.lora: no layer") == 1
