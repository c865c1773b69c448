"""Steps as tasks of a pipeline: a run's id in, the step's result out, an error as an exit code."""

import logging
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from prometheus_client import Gauge

from understudy import installation, logs, metrics
from understudy.errors import Rejected, UnderstudyError
from understudy.graph import GATE, REGISTRATION, Kind, node_of
from understudy.launch.kubernetes.rendering import task_config
from understudy.recipe import Recipe
from understudy.steps import last_words
from understudy.steps.environment import open_store
from understudy.steps.execution import execute, result_of
from understudy.steps.graph import inputs_of, step_of, steps_of
from understudy.steps.signals import connect_to_run
from understudy.steps.start import Begun, start
from understudy.steps.step import Result

log = logging.getLogger(__name__)

STARTED = Gauge(
    "understudy_step_start_time_seconds",
    "When this process began with a step of a run.",
    ["run", "step"],
    registry=metrics.REGISTRY,
)


def run_step(name: str, run_id: str) -> Result:
    """Execute a step of a run, with the earlier steps' results as recorded in the run's folder.

    Args:
        name: one of step_names().
        run_id: as returned by start().
    """
    STARTED.labels(run_id, name).set_to_current_time()
    store = open_store()
    run = store.run(run_id)
    step = steps_of(Recipe.model_validate(run.recipe))[name]
    connect_to_run(run)
    inputs = inputs_of(step, run)
    world = step.outside(run, store, inputs)
    result = execute(step, store, run, {**inputs, **world.inputs}, world.facts)
    step.follow(run, store)
    state = run.state(name)
    status = state.state if state else "done"
    log.info("%s: %s: %s %s", name, status, step.kind, ": ".join(filter(None, (result.digest[:12], result.outcome))))
    return result


def start_component(
    values: dict[str, Any], overrides: str, seed: int, job_id: str, steps: list[str], fails: bool
) -> Begun:
    """start() as a pipeline's task; exit with code 3 if an earlier run was rejected and `fails` is set."""
    try:
        logs.configure()
        installation.check()
        begun = start(values, overrides, seed, job_id, steps)
        if fails and begun.found == "rejected":
            raise _rejection(begun.run)
        return begun
    except UnderstudyError as error:
        _fail(error)


def component(name: str, run_id: str, task: Mapping[str, Any] | None = None) -> Result:
    """run_step() as a pipeline's task: an error is one message and an exit code instead of a traceback.

    Args:
        name: the step.
        run_id: the run.
        task: the settings of the task, for the job that it launches.
    """
    task_config.hand_over(task)
    try:
        logs.configure()
        metrics.serve()
        return run_step(name, run_id)
    except UnderstudyError as error:
        _fail(error)


def ended(kind: Kind, run_id: str) -> Result:
    """The result of a finished step of the run, of a kind of which it has one."""
    store = open_store()
    run = store.run(run_id)
    step = step_of(node_of(Recipe.model_validate(run.recipe), kind))
    state = run.state(step.name)
    assert state is not None, f"{step.name} has not begun in {run_id}"
    assert state.digest, f"{step.name} has not ended in {run_id}"
    return result_of(step, store, state.digest)


def verdict_of(run_id: str) -> Result:
    """The verdict of a run whose gate has finished."""
    return ended(GATE, run_id)


def reject(run_id: str, fails: bool) -> None:
    """Record in MLflow that a run's student was rejected; exit with code 3 if `fails` is set."""
    recipe = Recipe.model_validate(open_store().run(run_id).recipe)
    component(node_of(recipe, REGISTRATION).name, run_id)
    if fails:
        _fail(_rejection(run_id))


def _rejection(run_id: str) -> Rejected:
    """The error with the failed rules and the location of the evidence."""
    rules, record = ended(GATE, run_id).outcome, ended(REGISTRATION, run_id).outcome
    return Rejected(f"{rules}; {record}; fail_when_rejected makes this run a failed one")


def _fail(error: UnderstudyError) -> NoReturn:
    """End this process with an error's exit code, and with its message in the log and in the pod's status."""
    log.error("%s", error)
    last_words.leave(str(error))
    sys.exit(error.exit_code)
