"""understudy run: the recipe's pipeline on this machine, in processes that end with this one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from understudy.cli.recipe import Overrides, RecipePath, checked, decided, for_pods
from understudy.cli.settings import Settings
from understudy.errors import DONE, FAILED, REJECTED, STOPPED, InputError, UnderstudyError

if TYPE_CHECKING:
    from understudy.cli.display import Display
    from understudy.graph import Node
    from understudy.recipe import Recipe
    from understudy.recipe.file import Written
    from understudy.store import Run, StepState, Store


class Place(StrEnum):
    """Where a run's jobs run."""

    HERE = "here"
    CLUSTER = "cluster"


PATIENCE = 5.0  # seconds for steps to release their leases


def run(
    ctx: typer.Context,
    recipe: RecipePath,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line on stdout.")] = False,
    on: Annotated[Place, typer.Option(help="This machine, or the cluster that KUBECONFIG names.")] = Place.HERE,
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="In the cluster.")] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Record where a training step's time goes.")] = False,
) -> None:
    """Run a recipe to a student that is registered or rejected, on this machine or in a cluster.

    Finished steps of earlier runs are reused; a stopped or killed run resumes from its last checkpoint.
    Exit codes: 0 registered, 1 failed, 2 wrong input, 3 rejected by the gate, 130 stopped.
    """
    from understudy.registry.client import server_at
    from understudy.registry.server import database
    from understudy.store import Store, remote_cache

    settings: Settings = ctx.obj
    if namespace and on is Place.HERE:
        raise InputError("-n: a run on this machine has no namespace; add --on cluster, or leave -n out")
    if as_json and on is Place.CLUSTER:
        raise InputError("--json: a run in a cluster is followed line by line; leave it out, jobs ls --json lists runs")
    if on is Place.CLUSTER:
        from understudy.cli.cluster import run_there

        pod_recipe = for_pods(checked(recipe, overrides or (), elsewhere=True)[0])
        raise typer.Exit(run_there(pod_recipe, namespace, settings.quiet, profile=profile))
    try:
        remote_cache.address()  # refuse an old name of its variable before anything is created
        written = decided(checked(recipe, overrides or ())[0])
        store, uri = Store(settings.store_folder), settings.tracking_uri
        if database(uri):  # repair or refuse a local registry; a server that does not answer stops no training
            server_at(uri).check()
    except UnderstudyError as error:
        if as_json:
            print(json.dumps({"event": "end", "exit_code": error.exit_code, "errors": [str(error)]}))
        raise
    raise typer.Exit(_run_here(written, store, uri, settings, as_json, profile))


def _run_here(written: "Written", store: "Store", uri: str, settings: Settings, as_json: bool, profile: bool) -> int:
    """Run a recipe to its end, print its outcome, and return its exit code."""
    from rich.console import Console

    from understudy.cli.display import display
    from understudy.cli.outcome import conclude
    from understudy.graph import nodes
    from understudy.launch.platform import platform
    from understudy.registry.recorder import close_dead
    from understudy.registry.server import public_uri

    recipe, name = written.recipe, written.source.name
    steps = [node.name for node in nodes(recipe)]
    detached = platform().detached
    if detached:  # PID 1 of a pod ignores signals without a handler
        signal.signal(signal.SIGTERM, _evicted)
    run = _begin(store, recipe, public_uri(uri))
    if profile:
        run.profiles.mkdir(exist_ok=True)
    console = Console(stderr=as_json, quiet=settings.quiet, highlight=False, soft_wrap=True)
    console.print(f"run {run.id} of {name}")
    try:
        search_path = _search_path(recipe, Path(name).parent)
        with display(console, as_json, settings) as progress:
            if _is_all_there(store, run, uri):
                progress.update(_states(run, steps))
            else:
                with _pipeline(run, uri, search_path) as pipeline:
                    _follow(run, nodes(recipe), pipeline, progress, partial(console.print, markup=False))
    except _Evicted:
        _close_if_stopped(run, uri)
        raise
    if detached:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the run's exit code is final
    code = _exit_code(run, steps, store)
    run.end(code)
    conclude(run, store, code, console, as_json, written.source.located)
    with suppress(UnderstudyError, KeyboardInterrupt):  # if a server does not answer, the next run does this
        close_dead(store, uri)
    return code


def _begin(store: "Store", recipe: "Recipe", uri: str) -> "Run":
    """A new run; in a cluster, the run of this pod's Job, which an earlier pod may have begun."""
    from understudy.kube import settings
    from understudy.launch.platform import platform

    platform().check(recipe.resources)
    run = store.create_run(
        recipe.name, recipe.model_dump(mode="json", by_alias=True), uri, os.environ.get(settings.RUN_ID)
    )
    run.take_up()
    return run


def _environment(run: "Run", uri: str) -> dict[str, str]:
    """The environment variables that steps read."""
    from understudy.registry.server import URI
    from understudy.steps.environment import HOME, RUN

    return {RUN: run.id, HOME: str(run.folder.parents[2]), URI: uri}


def _is_all_there(store: "Store", run: "Run", uri: str) -> bool:
    """Whether every step is in the step cache: a pipeline takes seconds to start, most of them kfp's import."""
    from understudy.steps.lookup import reuse

    before = os.environ.copy()
    os.environ.update(_environment(run, uri))
    try:
        return reuse(store, run).complete
    finally:
        os.environ.clear()
        os.environ.update(before)


def _search_path(recipe: "Recipe", folder: Path) -> dict[str, str]:
    """The environment variables for importing the recipe's factories; empty for a recipe without any.

    A folder at the front of the path may have a module that hides a library's: only recipes with factories get it.
    """
    from understudy.models.user_code import environment
    from understudy.recipe import FactoryModel

    has_factories = any(isinstance(model, FactoryModel) for model in recipe.models.values())
    return environment(folder) if has_factories else {}


@contextmanager
def _pipeline(run: "Run", uri: str, search_path: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the pipeline in a new session, so that Ctrl-C reaches only this process; kill it at the end of the block."""
    from understudy.agent import parent

    environment = {**parent.environment(), **_environment(run, uri), **search_path}
    command = [sys.executable, "-m", "understudy.pipelines.here", str(run.folder)]
    with (run.folder / "logs" / "pipeline.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            _kill(process)
            process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _follow(
    run: "Run",
    graph: Sequence["Node"],
    pipeline: subprocess.Popen[bytes],
    progress: "Display",
    report: Callable[[str], None],
) -> None:
    """Show the run until its pipeline ends. A first signal stops training at a checkpoint; others kill all steps."""
    from understudy.jobs.logs import RunLog
    from understudy.launch.platform import platform

    steps, resumable = [node.name for node in graph], [node.name for node in graph if node.kind.resumes]
    run_log, detached = RunLog(run.folder / "logs"), platform().detached

    def stop(number: int, frame: FrameType | None) -> None:
        if detached:
            _evicted(number, frame)
        training = any(state.state == "running" for state in _states(run, resumable))
        if training and not run.stop_requested:
            report("stopping at a checkpoint; a second signal stops at once")
        else:
            _kill(pipeline)
        run.request_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while pipeline.poll() is None:
            progress.update(_states(run, steps))
            for line in run_log.new():
                report(line)
            time.sleep(0.1)
        progress.update(_states(run, steps))
    except _Evicted:
        _hand_over(pipeline)
        with suppress(OSError, SystemExit):  # an absent volume or a closed pipe must not change the exit code
            for line in run_log.new():  # the next pod prints only later ones
                report(line)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hand_over(pipeline: subprocess.Popen[bytes]) -> None:
    """End this pod's steps: they release their leases, jobs continue, and the next pod takes over the run."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(ProcessLookupError):
        os.killpg(pipeline.pid, signal.SIGTERM)
        for _ in range(int(10 * PATIENCE)):
            _reap(pipeline.pid)
            os.killpg(pipeline.pid, 0)  # the steps outlive the process that started them
            time.sleep(0.1)


def _reap(group: int) -> None:
    """Reap a group's ended processes; a step whose parent has ended is adopted by this process in a pod."""
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


class _Evicted(SystemExit):
    """This pod is being evicted. Its exit code is not the run's: the run's Job starts another pod."""


def _evicted(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise _Evicted(128 + number)


def _close_if_stopped(run: "Run", uri: str) -> None:
    """End the run, in MLflow too, if its Job was deleted and not only this pod: no pod will resume it."""
    from understudy.kube.api import Kube
    from understudy.kube.owner import owner_now
    from understudy.kube.owner_state import why_ended
    from understudy.registry.recorder import close_ended

    with suppress(UnderstudyError, OSError):  # errors must not change the exit code; a later run closes the record
        kube = Kube()
        owner = owner_now(kube)
        if owner and why_ended(kube, owner):
            run.end(STOPPED)
            close_ended(run, uri)


def _states(run: "Run", steps: list[str]) -> list["StepState"]:
    states = [run.state(step) for step in steps]
    return [state for state in states if state]


def _exit_code(run: "Run", steps: list[str], store: "Store") -> int:
    from understudy.steps import summary_of

    states = _states(run, steps)
    # Failures first: a step that was not started because of one counts as stopped.
    ended = [state for kind in ("failed", "stopped") for state in states if state.state == kind]
    if ended:
        return ended[0].exit_code
    if run.stop_requested:
        return STOPPED
    if sum(state.state in ("done", "reused") for state in states) < len(steps):
        return FAILED
    verdict = summary_of(store, run).verdict
    return DONE if verdict and verdict["approved"] else REJECTED
