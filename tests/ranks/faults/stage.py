"""A store to itself, and the processes that work on it: to be watched, killed, and counted afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
NOWHERE = "http://127.0.0.1:9"  # a tracking server that refuses at once: training goes on, and MLflow is not imported
PROCESSES = {"single": 1, "ddp": 2, "fsdp": 2, "hsdp": 4}
STEPS, PAUSE = 80, 0.04

TRAIN = {"steps": STEPS, "batch_size": 16, "checkpoint_every": 10, "precision": "fp32"}
STUDENT = {"model": {"factory": "slow_model:build", "kwargs": {"width": 16, "pause": 0.0}}, "control": False}


def recipe(
    strategy: str = "single", factory: str = "build", train: dict[str, Any] | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Digits for a teacher with dropout that takes PAUSE seconds a step, and any student."""
    kwargs = {"pause": PAUSE, **kwargs} if factory == "build" else kwargs
    model = {"factory": f"slow_model:{factory}", "kwargs": kwargs}
    return {
        "name": "faults",
        "task": "image-classification",
        "data": {"source": {"type": "digits"}, "image": {"size": 8, "channels": 1}},
        "teacher": {"model": model, "train": {**TRAIN, "strategy": strategy, **(train or {})}},
        "student": {**STUDENT, "train": {"steps": 2}},
        "evaluate": {"latency": {"repeats": 1}},
        "gate": {"margin": 0.99, "max_latency_ratio": None},
        "resources": {"teacher": {"processes": PROCESSES[strategy], "device": "cpu"}, "distill": {"device": "cpu"}},
    }


@dataclass(frozen=True)
class Seen:
    """A living process of a stage."""

    pid: int
    command: str
    rank: int | None


class Stage:
    """A home folder and its processes, which are recognised by their environment, whoever their parent is."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = home / "store"

    def steps(
        self, recipe: dict[str, Any], last: str = "teacher", lease_seconds: float = 30.0
    ) -> "subprocess.Popen[str]":
        """The steps up to the last one in one process, which is the teacher's launcher."""
        return self._start(str(HERE / "alone.py"), self._written(recipe), last, str(lease_seconds), server=NOWHERE)

    def run(self, recipe: dict[str, Any]) -> "subprocess.Popen[str]":
        """The command understudy run, with MLflow's local database."""
        return self._start("-m", "understudy", "run", self._written(recipe))

    def _written(self, recipe: dict[str, Any]) -> str:
        path = self.home.with_name("recipe.yaml")
        path.write_text(yaml.safe_dump(recipe))
        return str(path)

    def _start(self, *arguments: str, server: str = "") -> "subprocess.Popen[str]":
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "UNDERSTUDY_HOME": str(self.home), "PYTHONPATH": os.pathsep.join(paths)}
        environment.pop("MLFLOW_TRACKING_URI", None)
        if server:
            environment["MLFLOW_TRACKING_URI"] = server
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> list[Seen]:
        """The living processes that work in this home."""
        return list(_of(self.home))

    def family(self, ancestor: int) -> list[Seen]:
        """A process and its descendants."""
        return [
            process for process in self.processes() if ancestor == process.pid or ancestor in _ancestors(process.pid)
        ]

    def ranks(self) -> dict[int, int]:
        """The process ids of a job's ranks."""
        return {process.rank: process.pid for process in self.processes() if process.rank is not None}

    def left_behind(self, seconds: float = 5.0) -> list[Seen]:
        """The processes that still live after so many seconds; empty as soon as there are none."""
        wait(lambda: not self.processes(), seconds)
        return self.processes()

    def job(self) -> Path | None:
        """The work folder of the teacher's step while it is not finished."""
        folders = [path for path in (self.store / "work").glob("[!.]*/[0-9]*.*") if (path / "job.json").exists()]
        return max(folders, key=lambda path: int(path.name.split(".")[0]), default=None)

    def reported(self, since: float = 0.0) -> list[int]:
        """The steps that jobs have reported since a time."""
        job = self.job()
        try:
            lines = (job / "metrics.jsonl").read_bytes().split(b"\n")[:-1] if job else []
        except FileNotFoundError:
            return []
        return [entry["step"] for entry in map(json.loads, lines) if entry["time"] >= since]

    def first_report(self, process: "subprocess.Popen[str]", since: float) -> int:
        """Wait until a new job reports: its first step. It reports that one, and at least every one that saves."""
        assert wait(lambda: self.reported(since) or process.poll() is not None)
        return self.reported(since)[0]

    def checkpoints(self) -> list[int]:
        """The complete checkpoints, by step."""
        job = self.job()
        return sorted(int(path.name.removeprefix("step-")) for path in job.glob("checkpoints/step-*")) if job else []

    def is_writing(self) -> bool:
        """Whether a checkpoint is being written."""
        job = self.job()
        return job is not None and any(job.glob("checkpoints/.writing-*/*.distcp"))

    def remembered(self, step: str) -> list[str]:
        """The digests that finished steps of this name gave."""
        cached = [json.loads(path.read_text()) for path in (self.store / "step-cache").glob("[!.]*.json")]
        return [entry["digest"] for entry in cached if entry["step"] == step]

    def states(self, step: str) -> dict[str, str]:
        """By run, the state of a step."""
        return {run: state["state"] for run, state in self._recorded(step)}

    def failures(self, step: str) -> list[str]:
        """The recorded failures of a step, which the command shows its user."""
        return [state["detail"] for _, state in self._recorded(step) if state["state"] == "failed"]

    def _recorded(self, step: str) -> list[tuple[str, dict[str, Any]]]:
        paths = sorted((self.store / "runs").glob(f"*/steps/{step}.json"))
        return [(path.parts[-3], json.loads(path.read_text())) for path in paths]

    def clear(self) -> None:
        """Kill the remaining processes."""
        for process in self.processes():
            os.kill(process.pid, signal.SIGKILL)


def _of(home: Path) -> Iterator[Seen]:
    mark = f"UNDERSTUDY_HOME={home}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if mark in environment:
            rank = next((int(value[5:]) for value in environment if value.startswith(b"RANK=")), None)
            yield Seen(
                int(entry.name), command, rank if "understudy.agent.worker" in command else _forked(entry, command)
            )


def _forked(entry: Path, command: str) -> int | None:
    """The rank of a worker that was forked: it has its parent's command line and environment."""
    parent = _parent(int(entry.name))
    if "understudy.launch.local.warm" not in command or parent is None:
        return None
    return 0 if Path(f"/proc/{parent}/cmdline").read_text().replace("\0", " ") == command else None


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _ancestors(pid: int) -> set[int]:
    ancestors, parent = set[int](), _parent(pid)
    while parent:
        ancestors.add(parent)
        parent = _parent(parent)
    return ancestors


def wait(until: Callable[[], Any], seconds: float = 240.0, every: float = 0.005) -> bool:
    """Wait until something holds; False when it did not in time."""
    end = time.monotonic() + seconds
    while not until():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True


def ended(process: "subprocess.Popen[str]", seconds: float = 300.0) -> tuple[int, str, str]:
    """A process's exit code and all that it printed."""
    out, error = process.communicate(timeout=seconds)
    return process.returncode, out, error


def digest(out: str) -> str:
    """The teacher's digest in the output of the steps."""
    return next(line.removeprefix("teacher ") for line in out.splitlines() if line.startswith("teacher "))
