"""Run folders: the recorded state of one pipeline run, step by step."""

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from understudy.errors import UnderstudyError, disk_errors
from understudy.store.files import read_json, write_json
from understudy.store.lease import Process

QUIET = 24 * 3600.0  # seconds without a heartbeat after which a run whose driver cannot be checked counts as dead


@dataclass(frozen=True)
class StepState:
    """The state of a run's step. `done` of `total` is its progress, in `unit`; times are Unix seconds.

    `left` is the estimate of remaining seconds at the current pace; 0 when unknown.
    """

    step: str
    state: Literal["waiting", "running", "done", "reused", "failed", "stopped"]
    key: str = ""
    digest: str = ""
    detail: str = ""
    done: float = 0
    total: float = 0
    unit: str = ""
    left: float = 0
    started: float = 0
    ended: float = 0
    exit_code: int = 0
    resumed: int = 0
    """The training step of the checkpoint that it resumed from; 0 if there was none."""

    @property
    def summary(self) -> str:
        """The progress as text: 20/60 steps  loss 0.1234, 900 images/s, 40 s left."""
        count = f"{self.done:g}/{self.total:g} {self.unit}  " if self.total else ""
        left = f"{duration(self.left)} left" if self.left else ""
        return f"{count}{', '.join(filter(None, (self.detail, left)))}".rstrip()


@dataclass(frozen=True)
class RunFacts:
    """Facts recorded when a run began: the content of run.json."""

    name: str = ""
    tracking_uri: str = ""
    started: float = 0.0
    """Unix seconds."""
    driver: Process | None = None
    """The process that drives all steps of the run: the command here, None in a cluster."""

    @staticmethod
    def read(path: Path) -> "RunFacts":
        """The facts in a file; empty ones if it was removed with its folder meanwhile."""
        value = read_json(path) or {}
        driver = value.get("driver")
        return RunFacts(**{**value, "driver": Process(**driver) if driver else None})


def duration(seconds: float) -> str:
    """A duration as text: 5 s, 3 min, 2 h, 4 days."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


class Run:
    """One pipeline run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def id(self) -> str:
        """The run's name, unique in its store."""
        return self.folder.name

    @property
    def recipe(self) -> Mapping[str, object]:
        """The complete recipe of the run, as plain data: the store does not interpret it."""
        value = read_json(self.folder / "recipe.json")
        if value is None:
            raise UnderstudyError(f"{self.folder}: no such run; understudy store ls --runs lists them")
        return dict(value)

    @property
    def facts(self) -> RunFacts:
        """Facts recorded when the run began."""
        return RunFacts.read(self.folder / "run.json")

    def record(self, state: StepState) -> None:
        """Replace a step's state."""
        write_json(self.folder / "steps" / f"{state.step}.json", asdict(state))

    def state(self, step: str) -> StepState | None:
        """A step's state; None before it began."""
        value = read_json(self.folder / "steps" / f"{step}.json")
        return StepState(**value) if value else None

    def states(self) -> list[StepState]:
        """The states of all steps that have begun, in that order."""
        states = (self.state(path.stem) for path in (self.folder / "steps").glob("[!.]*.json"))
        return sorted((state for state in states if state), key=lambda state: state.started)

    def note(self, text: str) -> None:
        """Add a note to the run's output; it has no effect on the result."""
        with disk_errors(self.folder), (self.folder / "notes").open("a") as stream:
            stream.write(f"{text}\n")

    @property
    def notes(self) -> list[str]:
        """The notes."""
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def use(self, digest: str) -> None:
        """Protect an object from gc while the run lives. Call before looking for the object."""
        with disk_errors(self.folder):
            (self.folder / "uses" / digest).touch()

    @property
    def uses(self) -> set[str]:
        """The objects that the run has touched."""
        return {path.name for path in (self.folder / "uses").glob("*")}

    def live(self) -> None:
        """Renew the run's heartbeat when nothing else changes."""
        with suppress(OSError):  # a brief outage of the volume; the next heartbeat is an hour later
            os.utime(self.folder / "run.json")

    def request_stop(self) -> None:
        """Ask every process of the run to stop at its next checkpoint."""
        (self.folder / "stop").touch()

    @property
    def profiles(self) -> Path:
        """The folder of its trainings' profiles; it exists if profiling was requested."""
        return self.folder / "profiles"

    @property
    def is_profiled(self) -> bool:
        """Whether its trainings are to be profiled."""
        return self.profiles.is_dir()

    @property
    def stop_requested(self) -> bool:
        """Whether the run was asked to stop."""
        return (self.folder / "stop").exists()

    def take_up(self) -> None:
        """Resume a run whose driver has ended: this process is its driver now, and goes through all steps."""
        write_json(self.folder / "run.json", asdict(replace(self.facts, driver=_driver())))
        for path in (self.folder / "ended.json", self.folder / "stop", *self.folder.glob("steps/*.json")):
            path.unlink(missing_ok=True)

    def end(self, exit_code: int) -> None:
        """Record that the run has ended."""
        write_json(self.folder / "ended.json", {"exit_code": exit_code, "at": time.time()})

    @property
    def exit_code(self) -> int | None:
        """The run's exit code; None if it has not ended, or was killed."""
        ended = read_json(self.folder / "ended.json")
        return int(ended["exit_code"]) if ended else None

    @property
    def is_live(self) -> bool:
        """Whether a process may still be working for this run."""
        if (self.folder / "ended.json").exists():
            return False
        driver = self.facts.driver
        if driver and driver.is_gone():
            return False
        return time.time() - max(_modified(self.folder), default=0.0) < QUIET


def _modified(folder: Path) -> Iterator[float]:
    """The modification times of a folder's entries; temporary files may be renamed meanwhile."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            yield path.stat().st_mtime


def create(runs: Path, name: str, recipe: Mapping[str, object], tracking_uri: str, run_id: str | None = None) -> Run:
    """Create a run's folder, or reuse the existing one of its id (a retried first step)."""
    run = Run(runs / (run_id or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"))
    if (run.folder / "run.json").exists():
        return run
    with disk_errors(runs):
        for part in ("steps", "uses", "logs"):
            (run.folder / part).mkdir(parents=True, exist_ok=True)
    write_json(run.folder / "recipe.json", recipe)
    write_json(run.folder / "run.json", asdict(RunFacts(name, tracking_uri, time.time(), _driver())))
    return run


def _driver() -> Process | None:
    """This process; None in a cluster, where a step's pod has a driver on another machine."""
    return None if "KFP_POD_NAME" in os.environ else Process.current()


def every(runs: Path) -> Iterator[Run]:
    """All runs, the oldest first."""
    return (Run(path.parent) for path in sorted(runs.glob("[!.]*/run.json")))
