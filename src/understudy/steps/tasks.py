"""Steps as tasks of a pipeline: a run's id and input digests in, an object's digest out, an error as an exit code."""

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from understudy import logs
from understudy.errors import UnderstudyError
from understudy.launch.kubernetes.rendering import task_config
from understudy.steps.environment import open_store
from understudy.steps.execution import execute
from understudy.steps.graph import STEPS
from understudy.steps.signals import connect_to_run
from understudy.steps.start import start
from understudy.steps.step import Result

log = logging.getLogger(__name__)

LAST_WORDS = Path("/dev/termination-log")
"""What a container writes here becomes part of its pod's status (Kubernetes' default terminationMessagePath)."""
LAST_WORDS_BYTES = 4096  # of more, the kubelet keeps the end


def run_step(name: str, run_id: str, inputs: Mapping[str, str]) -> Result:
    """Execute a step of a run.

    Args:
        name: one of step_names().
        run_id: as returned by start().
        inputs: digests by role; an empty one stands for a step that this pipeline does not have.
    """
    step, store = STEPS[name], open_store()
    run = store.run(run_id)
    connect_to_run(run)
    assert set(inputs) <= set(step.inputs), f"{name} takes {step.inputs}, not {inputs}"
    given = {role: digest for role, digest in inputs.items() if digest}
    world = step.outside(run, store, given)
    result = execute(step, store, run, {**given, **world.inputs}, world.facts)
    step.follow(run, store)
    state = run.state(name)
    how = state.state if state else "done"
    log.info("%s: %s: %s %s", name, how, step.kind, ": ".join(filter(None, (result.digest[:12], step.outcome(result)))))
    return result


def start_component(values: dict[str, Any], overrides: str, seed: int, job_id: str, steps: list[str]) -> str:
    """start() for a pipeline's task."""
    try:
        logs.configure()
        return start(values, overrides, seed, job_id, steps)
    except UnderstudyError as error:
        _fail(error)


def component(name: str, run_id: str, task: Mapping[str, Any] | None = None, /, **inputs: str) -> Result:
    """run_step() for a pipeline's task: an error is one message and an exit code instead of a traceback.

    Args:
        name: the step.
        run_id: the run.
        task: what was set on the task, for the job that it launches.
        inputs: digests by role.
    """
    task_config.hand_over(task)
    try:
        logs.configure()
        return run_step(name, run_id, inputs)
    except UnderstudyError as error:
        _fail(error)


def _fail(error: UnderstudyError) -> NoReturn:
    """End this process with an error's exit code, and with its message in the log and in the pod's status.

    KFP's pages and its API know of a failed task only what stands in the status: otherwise it is "Error (exit code 1)".
    """
    log.error("%s", error)
    if LAST_WORDS.is_file():
        with suppress(OSError):  # the log has it
            LAST_WORDS.write_bytes(str(error).encode()[:LAST_WORDS_BYTES])
    sys.exit(error.exit_code)
