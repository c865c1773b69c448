"""Attempts: when a job's ranks come back, the first of them renames the folder that they write checkpoints into.

A rank of an earlier attempt that was only cut off (its node came back) finds its path gone, as a holder of a lost lease
does: see store/lease.py.
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
NAME = re.compile(r"attempt\.[0-9]{1,9}\.[0-9a-z]+")  # whatever else a rank gives such a name is no attempt
FAILURES = "failures.jsonl"
MOST = 4 * 2**20  # bytes of it that are read: a rank may leave a file of any size
WORLD = "world"
DIGITS = 8  # of a number of ranks, at most


def latest(folder: Path) -> Path | None:
    """The folder of a job's newest attempt; None before the first."""
    attempts = (path for path in folder.glob(f"{PREFIX}*") if NAME.fullmatch(path.name))
    return max(attempts, key=lambda path: _number(path.name), default=None)


def number(folder: Path) -> int:
    """How many attempts a job has had, the newest among them."""
    attempt = latest(folder)
    return _number(attempt.name) if attempt else 0


def ranks(spec: JobSpec) -> range:
    """The ranks of a job's newest attempt: fewer than its most, where an elastic job has not all its nodes."""
    attempt = latest(Path(spec.folder))
    try:
        if attempt is None:
            return range(spec.world_size)
        with opened(attempt / WORLD) as stream:
            return range(min(int(stream.read(DIGITS)), spec.world_size))
    except (FileNotFoundError, NotADirectoryError, ValueError):  # it is just beginning, or a rank made something else
        return range(spec.world_size)


def outcomes(spec: JobSpec) -> list[Outcome]:
    """How the ranks of the newest attempt have ended that have."""
    refresh(Path(spec.folder))
    attempt = latest(Path(spec.folder))
    known = ("", attempt.name) if attempt else ("",)
    said = [Outcome.read(spec.outcome(rank)) for rank in ranks(spec)]
    ended = [outcome for outcome in said if outcome is not None]
    return [outcome for outcome in ended if outcome.attempt in known]


def is_complete(spec: JobSpec) -> bool:
    """Whether every rank of the newest attempt is done, and its result there."""
    attempt = latest(Path(spec.folder))
    if attempt is None or not (attempt / "output").is_dir():
        return False
    # An outcome without an attempt is of a rank that ended before it joined one: no part of this result.
    own = [outcome for outcome in outcomes(spec) if outcome.attempt == attempt.name]
    done = [outcome for outcome in own if outcome.exit_code == 0]
    return len(done) == len(ranks(spec))


def begin(spec: JobSpec, world_size: int) -> str:
    """Start a job's next attempt. To be called by its first rank alone.

    Args:
        spec: the job.
        world_size: how many ranks have joined.

    Returns:
        The name of the attempt's folder.

    Raises:
        Fenced: the job has ended, or was given up.
    """
    folder = Path(spec.folder)
    while True:
        before = latest(folder)
        name = f"{PREFIX}{_number(before.name) + 1 if before else 1}.{secrets.token_hex(4)}"
        # The rename is the fence: of two ranks 0 that begin an attempt one finds its source gone and looks again, and
        # ranks of the attempt before can write their checkpoints nowhere.
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
    """How the ranks of earlier attempts failed, the oldest first."""
    try:
        with opened(folder / FAILURES) as stream:
            lines = stream.read(MOST).splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        with suppress(ValidationError):  # half a line, where the disk was full or two nodes wrote at once
            found.append(OUTCOME.validate_json(line, strict=True))
    return found


def report_hang(spec: JobSpec, text: str) -> None:
    """Record that an attempt hung; the first node that notices it does."""
    folder = Path(spec.folder)
    attempt = latest(folder)
    try:
        (attempt or folder).joinpath("hung").touch(exist_ok=False)
    except FileExistsError:
        return
    with disk_errors(folder):
        _append(folder, Outcome(FAILED, text, "lost"))


def _append(folder: Path, outcome: Outcome) -> None:
    # A line break before it too: the disk may have been full in the middle of the line before.
    append(folder / FAILURES, f"\n{json.dumps(asdict(outcome))}\n")


def keep_failures(spec: JobSpec) -> None:
    """Append the earlier attempt's failure to the history: of all its ranks the one that made the others fail."""
    paths = list(Path(spec.folder).glob("outcome-*.json"))
    said = [Outcome.read(path) for path in paths]
    ended = [outcome for outcome in said if outcome is not None]
    failed = [outcome for outcome in ended if outcome.exit_code]
    with disk_errors(Path(spec.folder)):
        if failed:
            _append(Path(spec.folder), Outcome.cause(failed))
        _remove([*paths, spec.abandoned_file])
    _remove([*Path(spec.folder).glob("heartbeat-*.json"), *Path(spec.folder).glob(f"{PREFIX}*/hung")])


def _remove(paths: list[Path]) -> None:
    """Remove files that ranks may have made: no folder, and nothing behind a link to one."""
    for path in paths:
        if not path.parent.is_symlink() and (path.is_symlink() or not path.is_dir()):
            path.unlink(missing_ok=True)


def _number(name: str) -> int:
    return int(name.split(".")[1])
