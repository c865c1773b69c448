"""Resuming from a checkpoint of the same training with other degrees of parallelism, if the recipe allows it.

Each set of degrees has a separate step key, since another order of sums changes the last bits. But a checkpoint can
be resharded to any of them: a user with fewer GPUs today than yesterday need not start over.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from understudy.errors import Stopped, UnderstudyError
from understudy.jobs import attempts, files
from understudy.jobs.payload import TrainingJob
from understudy.jobs.specification import JobSpec
from understudy.steps.step import Parts, Work
from understudy.store.files import canonical, sha256, write_json
from understudy.store.lease import is_held

MARK = "training.json"
SPREAD = (
    "strategy",
    "tensor_plan",
    "pipeline",
    "gradient_accumulation_steps",
    "activation_checkpointing",
    "offload",
    "compile",
    "precision",
    "checkpoint_every",
    "resume_resharded",
)
"""Training settings that change how the model is computed, but not which model."""


@dataclass(frozen=True)
class Mark:
    """The training that a work folder belongs to."""

    training: str
    """The digest of all parts of its step key, except its distribution over processes."""
    spread: str
    """Its distribution, as text."""
    since: str | None = None
    """The checkpoint of other degrees that it resumed from, as text."""


MARKS = TypeAdapter(Mark)


def resume_resharded(work: Work, spec: JobSpec) -> None:
    """Mark the work folder as this training's; without a checkpoint, link those of the same training in other degrees.

    Of several such trainings, the one with the latest step is taken. Its work folder is not changed.

    Raises:
        UnderstudyError: that training is still running, or the disk is full.
        Stopped: a stop was requested meanwhile.
    """
    assert isinstance(spec.payload, TrainingJob)
    root = work.lease.folder.parent
    mark = files.read(root / MARK, MARKS) or Mark(training_of(work.decided_by), _spread(spec))
    if spec.payload.train.resume_resharded and not list(_checkpoints(root)):
        for source, checkpoints in _same_trainings(work, mark.training):
            if step := _link_checkpoints(checkpoints, spec):
                mark = Mark(mark.training, mark.spread, f"step {step} of {source.spread}")
                break
    write_json(root / MARK, MARKS.dump_python(mark))
    if mark.since:
        work.facts["resumed_from"] = mark.since


def training_of(decided_by: Parts) -> str:
    """The digest of all parts of a training's step key, except its distribution over processes."""
    recipe = {name: value for name, value in decided_by["recipe"].items() if name not in ("world", "device")}
    train = recipe["train"]
    assert isinstance(train, dict)
    recipe["train"] = {name: value for name, value in train.items() if name not in SPREAD}
    return sha256(canonical({**decided_by, "recipe": recipe}))


def _spread(spec: JobSpec) -> str:
    assert isinstance(spec.payload, TrainingJob)
    resources = spec.resources
    return f"{spec.payload.train.strategy} on {resources.nodes} x {resources.processes} processes"


def _same_trainings(work: Work, training: str) -> Iterator[tuple[Mark, list[Path]]]:
    """The same training in other degrees and its checkpoints, once its lease is free; the latest step first."""
    work_folder = work.lease.folder.parent
    trainings: list[tuple[Mark, list[Path]]] = []
    for root in work_folder.parent.glob("[0-9a-f]*"):
        mark = files.read(root / MARK, MARKS) if root != work_folder else None
        if mark and mark.training == training and any(_checkpoints(root)):
            _wait(work, root, mark)
            trainings.append((mark, list(_checkpoints(root))))
    trainings.sort(key=lambda marked: max(map(_step, marked[1]), default=0), reverse=True)
    return iter(trainings)


def _wait(work: Work, root: Path, mark: Mark) -> None:
    """Wait for a lease to become free, as long as its expiry takes: its holder may just have been killed."""
    end = time.monotonic() + work.store.lease_seconds
    while is_held(root.parent, root.name, work.store.lease_seconds):
        if work.run.stop_requested:
            raise Stopped(f"{work.step}: not started: a stop was requested; run again to resume")
        if time.monotonic() > end:
            raise UnderstudyError(
                f"{work.step}: the same training is running as {mark.spread}; stop that run, and run again to resume "
                "from its last checkpoint, or set resume_resharded to false"
            )
        work.report_waiting(f"the same training is running as {mark.spread}")
        time.sleep(0.2)


def _checkpoints(root: Path) -> Iterator[Path]:
    """The checkpoints in a training's work folder: below the lease's folder locally, below attempts in a cluster."""
    for pattern in ("*/checkpoints/step-*", "*/attempt.*/checkpoints/step-*"):
        for path in root.glob(pattern):
            if path.name.removeprefix("step-").isdecimal():
                yield path


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def _link_checkpoints(checkpoints: list[Path], spec: JobSpec) -> int:
    """Hard-link checkpoints into a job's folder; the last step, 0 for none.

    When loading, a damaged checkpoint is skipped for the one before.
    """
    aside = Path(spec.folder) / f".adopted-{secrets.token_hex(4)}"
    (aside / "checkpoints").mkdir(parents=True)
    steps = []
    for checkpoint in checkpoints:
        with suppress(FileNotFoundError):  # ranks that are exiting may replace it by a newer one
            _link(checkpoint, aside / "checkpoints" / checkpoint.name)
            steps.append(_step(checkpoint))
    if steps and spec.supervised:  # as an attempt before the first
        os.rename(aside, Path(spec.folder) / f"{attempts.PREFIX}0.{secrets.token_hex(4)}")
    elif steps:
        os.rename(aside / "checkpoints", spec.work / "checkpoints")
    return max(steps, default=0)


def _link(checkpoint: Path, target: Path) -> None:
    """Hard-link a checkpoint's files; skip anything else that ranks left there."""
    aside = target.with_name(f".{target.name}")
    aside.mkdir()
    for path in checkpoint.iterdir():
        if path.is_file() and not path.is_symlink():
            os.link(path, aside / path.name, follow_symlinks=False)
    os.rename(aside, target)
