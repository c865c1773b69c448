"""understudy run: the recipe's pipeline on this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from rich.console import Console

from understudy.cli import outcome
from understudy.cli.display import Display, display
from understudy.errors import DONE, FAILED, REJECTED, STOPPED, UnderstudyError
from understudy.steps import HOME, RUN, graph, open_store, summary
from understudy.store import Run, StepState, Store

RESUMABLE = {"teacher", "distill", "control"}


def run(recipe_path: Path, overrides: list[str], tracking_uri: str | None, as_json: bool, quiet: bool) -> int:
    """Run a recipe's pipeline through kfp.local and show it.

    Returns:
        The exit code: 0 registered, 1 failed, 2 wrong input, 3 rejected by the gate, 130 stopped.
    """
    from understudy.recipe_file import load
    from understudy.registry import server

    recipe = load(recipe_path, overrides)
    store = open_store()
    uri = server.tracking_uri(store.folder.parent, tracking_uri)
    started = store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), server.public_uri(uri))
    console = Console(stderr=as_json)
    if not quiet:
        console.print(f"run {started.id} of {recipe_path}", highlight=False)
    steps = graph(recipe)
    with _pipeline(started, uri) as pipeline, display(console, as_json, quiet) as shown:
        _follow(started, steps, pipeline, shown, console)
    code = _exit_code(started, steps, store)
    started.end(code)
    _conclude(started, store, code, console, as_json)
    return code


@contextmanager
def _pipeline(run: Run, uri: str) -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline in a session of its own, so that a Ctrl-C reaches only this process; none of it outlives us."""
    environment = {**os.environ, RUN: run.id, HOME: str(run.folder.parents[2]), "MLFLOW_TRACKING_URI": uri}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_checkout()), os.environ.get("PYTHONPATH")]))
    log = (run.folder / "logs" / "pipeline.log").open("wb")
    command = [sys.executable, "-m", "pipelines.here", str(run.folder)]
    with (
        log,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        try:
            yield process
        finally:
            _kill(process)


def _checkout() -> Path:
    """Where pipelines/ and components/ lie: beside src/ in a checkout, or here."""
    places = [Path(__file__).parents[3], Path.cwd()]
    found = next((place for place in places if (place / "pipelines" / "distillation.py").exists()), None)
    if found is None:
        raise UnderstudyError("pipelines/ is not here: it is no part of the wheel; run from a checkout of understudy")
    return found


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _follow(run: Run, steps: list[str], pipeline: subprocess.Popen[bytes], shown: Display, console: Console) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        if run.stop_requested or not any(state.state == "running" for state in _states(run, RESUMABLE)):
            _kill(pipeline)
        elif not console.quiet:
            console.print("stopping at a checkpoint; once more stops at once", highlight=False)
        run.request_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while pipeline.poll() is None:
            shown.update(_states(run, steps))
            time.sleep(0.1)
        shown.update(_states(run, steps))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _states(run: Run, steps: list[str] | set[str]) -> list[StepState]:
    return [state for step in steps if (state := run.state(step))]


def _exit_code(run: Run, steps: list[str], store: Store) -> int:
    states = {state.step: state for state in _states(run, steps)}
    failed = next((state for state in states.values() if state.state in ("failed", "stopped")), None)
    if failed:
        return failed.exit_code
    if run.stop_requested:
        return STOPPED
    if any(step not in states or states[step].state not in ("done", "reused") for step in steps):
        return FAILED
    verdict = summary(store, run).verdict
    return DONE if verdict and verdict["approved"] else REJECTED


def _conclude(run: Run, store: Store, code: int, console: Console, as_json: bool) -> None:
    came_to = summary(store, run)
    if as_json:
        print(json.dumps({"event": "end", "exit_code": code, **asdict(came_to)}), flush=True)
    if came_to.measures:
        console.print()
        console.print(outcome.results(came_to.measures))
    if came_to.verdict:
        console.print()
        outcome.show_verdict(console, came_to.verdict)
        report = store.objects.path(_digest(run, "gate")) / "report.html"
        console.print(f"report: {report}", highlight=False, soft_wrap=True)
    if came_to.registration and came_to.registration["version"]:
        found = came_to.registration
        console.print(f"registered: {found['name']} version {found['version']}, alias challenger", highlight=False)
        console.print("look at it: understudy ui", highlight=False)
    for problem in _problems(run, code):
        Console(stderr=True).print(problem, markup=False, highlight=False, soft_wrap=True)


def _digest(run: Run, step: str) -> str:
    state = run.state(step)
    return state.digest if state else ""


def _problems(run: Run, code: int) -> list[str]:
    if code in (DONE, REJECTED):
        return []
    states = [state for path in sorted((run.folder / "steps").glob("*.json")) if (state := run.state(path.stem))]
    told = [f"error: {state.detail}" for state in states if state.state == "failed"]
    told += [state.detail for state in states if state.state == "stopped"]
    unfinished = [state.step for state in states if state.state in ("running", "waiting")]
    if code == STOPPED:
        return told or ["stopped; run again to go on"]
    log = os.path.relpath(run.folder / "logs" / "pipeline.log")
    what = f"the process of step {unfinished[0]} ended without a word" if unfinished else "the pipeline ended early"
    return told or [f"error: {what}; its output is in {log}. Run again to go on."]
