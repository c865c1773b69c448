"""What a run's steps look like while it goes on; whole runs are shown in tests/pipeline."""

import io
from dataclasses import replace

from rich.console import Console

from understudy.cli.display import Lines
from understudy.store import StepState

STATE = StepState("ingest", "reused", digest="0123456789abcdef", started=1, ended=3.5)


def shown(*states: StepState) -> list[str]:
    text = io.StringIO()
    lines = Lines(Console(file=text, width=200), seconds=0)
    for state in states:
        lines.update([state])
    return text.getvalue().splitlines()


def test_a_result_of_another_store_says_so() -> None:
    assert shown(STATE) == ["ingest    reused      2.5 s  0123456789ab"]
    fetched = replace(STATE, detail="from the remote cache")
    assert shown(fetched) == ["ingest    reused      2.5 s  0123456789ab  from the remote cache"]


def test_why_a_step_failed_is_left_for_the_end() -> None:
    working = StepState("ingest", "running", done=3, total=10, unit="records", detail="reading")
    failed = StepState("ingest", "failed", detail="a.png is no image", started=1, ended=2)
    assert shown(working, failed) == ["ingest    running  3/10 records  reading", "ingest    failed      1.0 s"]
