"""Attempts of a job: each time its ranks rejoin, rank 0 renames the folder of their checkpoints.

A rank of an earlier attempt that was only cut off (its node came back) finds its path gone, like the holder of a lost
lease: see store/lease.py.
"""

import errno
import json
import os
import re
import secrets
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError

from understudy.errors import FAILED, Fenced, disk_errors
from understudy.jobs.files import append, opened
from understudy.jobs.heartbeat import refresh
from understudy.jobs.outcome import OUTCOME, Outcome
from understudy.jobs.specification import JobSpec

PREFIX = "attempt."
NAME = re.compile(r"attempt\.[0-9]{1,9}\.[0-9a-z]+")  # ranks may give other names with this prefix
FAILURES = "failures.jsonl"
MOST = 4 * 2**20  # bytes read of that file: a rank may write any amount
WORLD = "world"
DIGITS = 8  # at most, of a number of ranks


def latest(folder: Path) -> Path | None:
    """The folder of a job's newest attempt; None before the first."""
    attempts = (path for path in folder.glob(f"{PREFIX}*") if NAME.fullmatch(path.name))
    return max(attempts, key=lambda path: _number(path.name), default=None)


def number(folder: Path) -> int:
    """The number of a job's newest attempt; 0 before the first."""
    attempt = latest(folder)
    return _number(attempt.name) if attempt else 0


def ranks(spec: JobSpec) -> range:
    """The ranks of a job's newest attempt: fewer than `world_size` while an elastic job lacks nodes."""
    attempt = latest(Path(spec.folder))
    try:
        if attempt is None:
            return range(spec.world_size)
        with opened(attempt / WORLD) as stream:
            return range(min(int(stream.read(DIGITS)), spec.world_size))
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the attempt is just beginning, or a rank replaced it
        return range(spec.world_size)


def outcomes(spec: JobSpec) -> list[Outcome]:
    """Outcomes of the newest attempt's ranks that have ended, and of ranks that ended before they joined one."""
    refresh(Path(spec.folder))
    attempt = latest(Path(spec.folder))
    accepted = ("", attempt.name) if attempt else ("",)
    recorded = [Outcome.read(spec.outcome(rank)) for rank in ranks(spec)]
    ended = [outcome for outcome in recorded if outcome is not None]
    return [outcome for outcome in ended if outcome.attempt in accepted]


def is_complete(spec: JobSpec) -> bool:
    """Whether every rank of the newest attempt succeeded, and its result exists."""
    attempt = latest(Path(spec.folder))
    if attempt is None or not (attempt / "output").is_dir():
        return False
    # An outcome without an attempt is that of a rank that ended before it joined one: no part of this result.
    current = [outcome for outcome in outcomes(spec) if outcome.attempt == attempt.name]
    done = [outcome for outcome in current if outcome.exit_code == 0]
    return len(done) == len(ranks(spec))


def begin(spec: JobSpec, world_size: int) -> str:
    """Start a job's next attempt; only rank 0 calls this.

    Args:
        spec: the job.
        world_size: number of ranks that have joined.

    Returns:
        The name of the attempt's folder.

    Raises:
        Fenced: the job is over, since its folder was removed.
    """
    folder = Path(spec.folder)
    while True:
        before = latest(folder)
        name = f"{PREFIX}{_number(before.name) + 1 if before else 1}.{secrets.token_hex(4)}"
        # The rename is the fence. If two ranks 0 begin an attempt, one finds its source gone and looks again; ranks of
        # the attempt before have no path left for checkpoints.
        try:
            with disk_errors(folder):
                os.rename(before, folder / name) if before else (folder / name).mkdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            if spec.is_over:
                raise Fenced(f"{folder}: this job is over") from error
            continue
        keep_failures(spec)
        with disk_errors(folder):
            (folder / name / WORLD).write_text(str(world_size))
        return name


def failures(folder: Path) -> list[Outcome]:
    """Failures of earlier attempts, the oldest first."""
    try:
        with opened(folder / FAILURES) as stream:
            lines = stream.read(MOST).splitlines()
    except FileNotFoundError:
        return []
    recorded = []
    for line in lines:
        with suppress(ValidationError):  # a partial line: the disk was full, or two nodes wrote concurrently
            recorded.append(OUTCOME.validate_json(line, strict=True))
    return recorded


def report_hang(spec: JobSpec, text: str) -> None:
    """Record that an attempt hung; only the first node to notice does so."""
    folder = Path(spec.folder)
    attempt = latest(folder)
    try:
        (attempt or folder).joinpath("hung").touch(exist_ok=False)
    except FileExistsError:
        return
    with disk_errors(folder):
        _append(folder, Outcome(FAILED, text, "lost"))


def _append(folder: Path, outcome: Outcome) -> None:
    # Begin with a line break too: a full disk may have cut off the line before.
    append(folder / FAILURES, f"\n{json.dumps(asdict(outcome))}\n")


def keep_failures(spec: JobSpec) -> None:
    """Append the earlier attempt's root failure to the history, and remove its outcomes, heartbeats and marks."""
    paths = list(Path(spec.folder).glob("outcome-*.json"))
    recorded = [Outcome.read(path) for path in paths]
    ended = [outcome for outcome in recorded if outcome is not None]
    failed = [outcome for outcome in ended if outcome.exit_code]
    with disk_errors(Path(spec.folder)):
        if failed:
            _append(Path(spec.folder), Outcome.cause(failed))
        _remove([*paths, spec.abandoned_file])
    _remove([*Path(spec.folder).glob("heartbeat-*.json"), *Path(spec.folder).glob(f"{PREFIX}*/hung")])


def _remove(paths: list[Path]) -> None:
    """Remove files that ranks may have created, but no folders, and nothing below a symlinked folder."""
    for path in paths:
        if not path.parent.is_symlink() and (path.is_symlink() or not path.is_dir()):
            path.unlink(missing_ok=True)


def _number(name: str) -> int:
    return int(name.split(".")[1])
