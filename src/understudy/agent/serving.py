"""A registered version loaded and asked about test examples, in a process without credentials: its model's code runs.

The process is of `registry.loaded`, and is started by its name: nothing below the registry knows MLflow. On one machine
the register step starts it; in a cluster, where that step's pod holds the registry's credentials, the rank of a job.
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
"""What a folder has for the process, and the file that it leaves."""
HANDED_ON = {"PATH", "HOME", "TMPDIR", "LANG", "PYTHONPATH", "LD_LIBRARY_PATH", "HF_HOME", "OMP_NUM_THREADS"}
HANDED_ON |= {"CUDA_VISIBLE_DEVICES", "UNDERSTUDY_PARENT"}
"""Of the environment; the rest may hold credentials, and the version's code is not to see them."""


def serve(spec: JobSpec, payload: Serving, surroundings: Surroundings) -> None:
    """Score the examples into the attempt's output.

    Raises:
        UnderstudyError: the version cannot be loaded.
        Stopped: somebody wanted the rank to end.
    """
    surroundings.heartbeat("loading", -1)
    output = surroundings.join_attempt(surroundings.begin_attempt(1)) / "output"
    log = spec.rank_logs / "served.log"
    with disk_errors(output):
        shutil.rmtree(output, ignore_errors=True)  # of an attempt that was ended
        output.mkdir()
        log.parent.mkdir(parents=True, exist_ok=True)
        process = started(Path(payload.folder), output, log)
    check(ended(process, surroundings.must_stop), log)
    surroundings.heartbeat("done", 0)


def started(folder: Path, output: Path, log: Path) -> "subprocess.Popen[bytes]":
    """The process that scores.

    Args:
        folder: has the version and the examples; it is only read.
        output: where scores are written.
        log: what the process prints is added there.
    """
    with log.open("ab") as printed:
        return subprocess.Popen(
            [sys.executable, "-m", LOADER, str(folder), str(output)], env=_environment(), stdin=subprocess.DEVNULL,
            stdout=printed, stderr=printed,
        )  # fmt: skip


def ended(process: "subprocess.Popen[bytes]", must_stop: Callable[[], bool]) -> int:
    """The exit code of a process that scores; it is killed where somebody wants it to end.

    Raises:
        Stopped: somebody does.
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
    """Refuse the exit code of a process that could not load the version.

    Raises:
        UnderstudyError: with the last line of what it printed.
    """
    if code:
        words = log.read_text(errors="replace").strip().splitlines()
        raise UnderstudyError(
            f"the version cannot be loaded as its users load it ({words[-1] if words else 'no output'}), so it is not "
            f"registered; all of the output is in {os.path.relpath(log)}"
        )


def _environment() -> Mapping[str, str]:
    kept = {name: value for name, value in environment().items() if name in HANDED_ON}
    return {**kept, "HF_HUB_OFFLINE": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "TOKENIZERS_PARALLELISM": "false"}
