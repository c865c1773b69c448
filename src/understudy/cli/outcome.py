"""The printed outcome of a run: models side by side, the verdict by rule, addresses of the results, and errors."""

import json
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from understudy.cli.profile import profile_table
from understudy.errors import DONE, REJECTED, STOPPED
from understudy.evaluate.contents import Measures, Verdict
from understudy.graph import REGISTRATION, nodes
from understudy.launch.platform import platform
from understudy.recipe import Recipe
from understudy.recipe.roles import TEACHER
from understudy.steps import state_of, summary_of
from understudy.steps.summary import Registered
from understudy.store import Run, StepState, Store
from understudy.train.profile import Profile


def conclude(
    run: Run, store: Store, code: int, console: Console, as_json: bool, located: Callable[[str], str] = str
) -> None:
    """Print a run's outcome.

    Args:
        run: the run, ended.
        store: its store.
        code: its exit code.
        console: for results; problems go to stderr.
        as_json: also print the last line of JSON.
        located: adds the recipe's lines to a step's error about it.
    """
    summary = summary_of(store, run)
    problems = _problems(run, code, located)
    if as_json:
        print(json.dumps({"event": "end", "exit_code": code, "errors": problems, **asdict(summary)}), flush=True)
    if summary.measures:
        console.print()
        console.print(results(summary.measures))
    if summary.profiles:
        _show_profiles(console, run, summary.profiles)
    if summary.verdict:
        console.print()
        show_verdict(console, summary.verdict)
    for title, path in _pages(run, store, is_registered=summary.registration is not None):
        console.print(f"{title}: {path}", markup=False)
    if summary.registration:
        console.print(_registered(run, summary.registration))
        console.print(f"look at it: {_address(summary.registration['url'], store.folder.parent)}", markup=False)
    if code == REJECTED and console.quiet and summary.verdict:
        problems = [
            f"rejected: {rule['rule']}: {rule['detail']}" for rule in summary.verdict["rules"] if not rule["passed"]
        ]
        problems += [f"what to change: {sentence}" for sentence in summary.verdict.get("advice", [])]
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    for text in [*(f"note: {note}" for note in summary.notes), *problems]:
        errors.print(text, markup=False)


def _show_profiles(console: Console, run: Run, profiles: Mapping[str, Profile]) -> None:
    console.print()
    console.print(profile_table(profiles))
    traces = run.folder / "logs" / "*" / "trace-*.json.gz"
    console.print(f"traces, for ui.perfetto.dev: {_shortest(traces)}", markup=False)


def _pages(run: Run, store: Store, *, is_registered: bool) -> Iterator[tuple[str, str]]:
    """The titles and paths of the results' pages: in MLflow if the store is out of reach."""
    for node in nodes(Recipe.model_validate(run.recipe)):
        page, state = node.kind.page, run.state(node.name)
        if page is None or state is None or not state.digest:
            continue
        if platform().remote and is_registered and page.is_recorded:
            yield page.title, f"{page.file} of the run, in MLflow"
        else:
            yield page.title, _shortest(store.objects.path(state.digest) / page.file)


def _address(url: str, home: Path) -> str:
    """The address of a run's page, or the command that shows the local one."""
    from understudy.registry.server import for_people

    ui_address = platform().reachable(for_people(url))
    is_usual = home == Path(os.environ.get("UNDERSTUDY_HOME", ".understudy")).absolute()
    return ui_address if url.startswith("http") or is_usual else f"understudy --home {shlex.quote(_shortest(home))} ui"


def _shortest(path: Path) -> str:
    """The shorter of a path's relative and absolute forms, with the fewest `..`."""
    return min(
        os.path.relpath(path), str(path.absolute()), key=lambda text: (text.count(".."), len(text.lstrip("/")), text)
    )


def _registered(run: Run, registration: Registered) -> str:
    """The student's registration. Without the alias if an earlier run made it, since the alias may have moved."""
    if not registration["version"]:
        return "not registered; the evidence is in MLflow"
    state, version = state_of(run, REGISTRATION), f"{registration['name']} version {registration['version']}"
    if state and state.state == "reused":
        return f"registered before: {version}"
    if registration.get("stays"):
        return f"registered before: {version}; the alias challenger stays where it is: {registration['stays']}"
    return f"registered: {version}, alias challenger"


def _problems(run: Run, code: int, located: Callable[[str], str]) -> list[str]:
    if code in (DONE, REJECTED):
        return []
    all_states = [run.state(path.stem) for path in sorted((run.folder / "steps").glob("*.json"))]
    states = [state for state in all_states if state]
    if code == STOPPED:
        return [state.detail for state in states if state.state == "stopped"] or ["stopped; run again to resume"]
    errors = dict.fromkeys(f"error: {located(state.detail)}" for state in states if state.state == "failed")
    return list(errors) or [_silent_end(run, states)]


def _silent_end(run: Run, states: list[StepState]) -> str:
    unfinished = [state.step for state in states if state.state in ("running", "waiting")]
    end = f"the process of step {unfinished[0]} ended without an outcome" if unfinished else "the pipeline ended early"
    log = os.path.relpath(run.folder / "logs" / "pipeline.log")
    return f"error: {end}; its output is in {log}. Run again to go on."


def results(measures: Measures) -> Table:
    """A table of teacher, student, control and champion."""
    metric = measures["gate_metric"]
    title = f"{metric.replace('_', ' ')} on {measures['examples']} test examples"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("model")
    for heading in (f"{metric} [{measures['confidence']:.0%}]", "parameters", "size", "latency", "throughput"):
        table.add_column(heading, justify="right", no_wrap=True)
    for role, model in measures["models"].items():
        value, interval = model["metrics"].get(metric), model["intervals"].get(metric)
        measured = "not measured" if value is None else f"{value:.4f}"
        spread = f" [{interval[0]:.4f}, {interval[1]:.4f}]" if interval else ""
        latency = model["latency"]
        table.add_row(
            role,
            measured + spread.replace("[", "\\["),
            f"{model['parameters']:,}",
            _bytes(model["bytes"]),
            f"{latency['median_ms']:.2f} ms",
            f"{latency['throughput_per_s']:,.0f}/s",
        )
    return table


def _bytes(size: float) -> str:
    power = min(3, int(math.log(max(size, 1), 1000)))
    return f"{size / 1000**power:.{1 if power else 0}f} {('B', 'kB', 'MB', 'GB')[power]}"


def show_verdict(console: Console, verdict: Verdict) -> None:
    """Print the gate's verdict, rule by rule; one of an older understudy has no headline and no advice."""
    approved = verdict["approved"]
    headline = verdict.get("headline") or ("approved" if approved else "rejected")
    console.print(headline, style="bold green" if approved else "bold red", markup=False)
    if (teacher := verdict.get("reference", TEACHER)) != TEACHER:
        console.print(f"  the teacher that it was compared with: {teacher}", markup=False)
    for caution in verdict.get("cautions", []):
        console.print(f"  note  {caution}", style="yellow", markup=False)
    for rule in verdict["rules"]:
        mark = "[green]pass[/]" if rule["passed"] else "[red]FAIL[/]"
        console.print(f"  {mark}  {rule['rule']}: ", end="")
        console.print(rule["detail"], markup=False)
    if verdict["control"]:
        console.print(f"  what the teacher was worth: {verdict['control']['detail']}", markup=False)
    if recovered := verdict.get("recovered"):
        console.print(f"  {recovered['detail']}", markup=False)
    if judged := verdict.get("judged"):
        console.print(f"  {judged}", markup=False)
    for sentence in verdict.get("advice", []):
        console.print(f"  what to change: {sentence}", markup=False)
