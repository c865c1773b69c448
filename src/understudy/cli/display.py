"""The display of a run in progress, from its folder: bars on a terminal, lines elsewhere, JSON for machines."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from understudy.cli.settings import Settings
from understudy.errors import printable

if TYPE_CHECKING:
    from understudy.store import StepState

MARKS = {"done": "[green]done", "reused": "[cyan]reused", "failed": "[red]failed", "stopped": "[yellow]stopped"}
LINE_SECONDS = 10.0


class Display(Protocol):
    """A display of the states of a run's steps."""

    def update(self, states: "list[StepState]") -> None:
        """Show the current states."""


class Failures:
    """Steps that failed while others continue, perhaps for hours: reported immediately, and again at the end."""

    def __init__(self) -> None:
        self._reported = set[str]()

    def new(self, states: "list[StepState]") -> Iterator[str]:
        """A message for each new failure."""
        if not any(state.state in ("running", "waiting") for state in states):
            return
        for state in states:
            if state.state == "failed" and state.step not in self._reported:
                self._reported.add(state.step)
                yield "\n".join(map(printable, f"{state.step} failed: {state.detail}".splitlines()))


class Resumptions:
    """Steps that resume from a checkpoint: reported once each, however soon their progress replaces that detail."""

    def __init__(self) -> None:
        self._reported = set[str]()

    def new(self, states: "list[StepState]") -> Iterator[tuple[str, str]]:
        """The name and a message of each step that has resumed since the last call."""
        for state in states:
            if state.resumed and state.step not in self._reported:
                self._reported.add(state.step)
                yield state.step, f"{state.step:<10}{'running':<9}resuming from step {state.resumed}"


class Bars:
    """A line with a bar for each step."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._failures, self._resumptions = Failures(), Resumptions()

    def update(self, states: "list[StepState]") -> None:
        """Move the bars."""
        for state in states:
            if state.step not in self._tasks:
                self._tasks[state.step] = self._progress.add_task(state.step, total=None, detail="")
            task, ended = self._tasks[state.step], state.state in MARKS
            total, done = (1.0, 1.0) if ended else (state.total or None, state.done)
            detail = f"{MARKS[state.state]} {_remark(state)}".rstrip() if ended else state.detail
            self._progress.update(task, total=total, completed=done, detail=detail)
            if ended:
                self._progress.stop_task(task)
        for line in (*dict(self._resumptions.new(states)).values(), *self._failures.new(states)):
            self._progress.console.print(line, markup=False)


class Lines:
    """A line for each change of a step's state, and periodically while a step runs."""

    def __init__(self, console: Console, seconds: float) -> None:
        self._console, self._seconds = console, seconds
        self._printed: dict[str, tuple[str, float]] = {}
        self._last = ""
        self._failures, self._resumptions = Failures(), Resumptions()

    def update(self, states: "list[StepState]") -> None:
        """Print the changes."""
        now, resumed = time.monotonic(), dict(self._resumptions.new(states))
        for state in states:
            if state.step in resumed:
                self._last = resumed[state.step]
                self._console.print(self._last, markup=False)
                self._printed[state.step] = "running", now
            printed, printed_at = self._printed.get(state.step, ("", 0.0))
            if state.state == printed and (state.state in MARKS or now - printed_at < self._seconds):
                continue
            self._printed[state.step] = state.state, now
            line = _line(state)
            if line != self._last:
                self._console.print(line, markup=False)
            self._last = line
        for line in self._failures.new(states):
            self._console.print(line, markup=False)


def _remark(state: "StepState") -> str:
    """A result's origin if that is another store, and a remark on it; a failure's detail is printed at the end."""
    return state.detail if state.state in ("done", "reused") else ""


def _line(state: "StepState") -> str:
    if state.state in MARKS:
        seconds = state.ended - state.started
        return f"{state.step:<10}{state.state:<9}{seconds:6.1f} s  {state.digest[:12]}  {_remark(state)}".rstrip()
    return f"{state.step:<10}{state.state:<9}{state.summary}".rstrip()


class JsonLines:
    """A line with a JSON object for every change."""

    def __init__(self) -> None:
        self._printed: dict[str, StepState] = {}

    def update(self, states: "list[StepState]") -> None:
        """Print the changes."""
        for state in states:
            if self._printed.get(state.step) != state:
                self._printed[state.step] = state
                print(json.dumps({"event": "step", **asdict(state)}), flush=True)


@contextmanager
def display(console: Console, as_json: bool, settings: Settings) -> Iterator[Display]:
    """The display for a terminal, a pipe or JSON. -v prints lines, one a second."""
    if as_json:
        yield JsonLines()
    elif settings.verbose or settings.quiet or not console.is_terminal:
        yield Lines(console, 1.0 if settings.verbose else LINE_SECONDS)
    else:
        columns = (
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}"),
        )
        with Progress(*columns, console=console, refresh_per_second=5) as progress:
            yield Bars(progress)
