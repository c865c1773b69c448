"""Scoring of test examples by a registered version, in a process without credentials, since the model's code runs.

The process runs `registry.loaded` and is started by that name: no layer below the registry imports MLflow. On one
machine the register step starts it. In a cluster the rank of a job does, since the step's pod has the registry's
credentials.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from understudy.agent.parent import environment
from understudy.agent.surroundings import Surroundings
from understudy.errors import Stopped, UnderstudyError, disk_errors
from understudy.jobs.payload import Serving
from understudy.jobs.specification import JobSpec

LOADER = "understudy.registry.loaded"
VERSION, EXAMPLES, SCORES = "version", "examples.json", "scores.json"
"""Names of the process's inputs in its folder, and of its output file."""
HANDED_ON = {"PATH", "HOME", "TMPDIR", "LANG", "PYTHONPATH", "LD_LIBRARY_PATH", "HF_HOME", "OMP_NUM_THREADS"}
HANDED_ON |= {"CUDA_VISIBLE_DEVICES", "UNDERSTUDY_PARENT"}
"""Variables that the process inherits; others may contain credentials, which the version's code must not see."""


def serve(spec: JobSpec, payload: Serving, surroundings: Surroundings) -> None:
    """Score the examples into the attempt's output.

    Raises:
        UnderstudyError: the version cannot be loaded.
        Stopped: the rank was requested to end.
    """
    surroundings.heartbeat("loading", -1)
    output = surroundings.join_attempt(surroundings.begin_attempt(1)) / "output"
    log = spec.rank_logs / "served.log"
    with disk_errors(output):
        shutil.rmtree(output, ignore_errors=True)  # left by an attempt that was ended
        output.mkdir()
        log.parent.mkdir(parents=True, exist_ok=True)
        process = started(Path(payload.folder), output, log)
    check(ended(process, surroundings.must_stop), log)
    surroundings.heartbeat("done", 0)


def started(folder: Path, output: Path, log: Path) -> "subprocess.Popen[bytes]":
    """Start the scoring process.

    Args:
        folder: contains the version and the examples; read only.
        output: folder for the scores.
        log: file to append the process's output to.
    """
    with log.open("ab") as printed:
        return subprocess.Popen(
            [sys.executable, "-m", LOADER, str(folder), str(output)], env=_environment(), stdin=subprocess.DEVNULL,
            stdout=printed, stderr=printed,
        )  # fmt: skip


def ended(process: "subprocess.Popen[bytes]", must_stop: Callable[[], bool]) -> int:
    """Wait for the scoring process and return its exit code; kill it if it has to stop.

    Raises:
        Stopped: it had to stop.
    """
    try:
        while process.poll() is None:
            if must_stop():
                raise Stopped("scoring was stopped")
            time.sleep(0.1)
    finally:
        process.kill()
        code = process.wait()
    return code


def check(code: int, log: Path) -> None:
    """Reject the exit code of a process that could not load the version.

    Raises:
        UnderstudyError: with the last line of the process's output.
    """
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise UnderstudyError(
            f"the version cannot be loaded as its users load it ({lines[-1] if lines else 'no output'}), so it is not "
            f"registered; all of the output is in {os.path.relpath(log)}"
        )


def _environment() -> Mapping[str, str]:
    passed_on = {name: value for name, value in environment().items() if name in HANDED_ON}
    return {**passed_on, "HF_HUB_OFFLINE": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "TOKENIZERS_PARALLELISM": "false"}
