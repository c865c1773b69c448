"""The profile of a training in MLflow: its figures as metrics, and its files, with traces, as artifacts of its run."""

import json
import shutil
import tempfile
from pathlib import Path

from understudy.jobs.files import opened
from understudy.registry.over_mlflow import OverMlflow
from understudy.registry.tracking import Value
from understudy.store import Run
from understudy.store.files import read_json
from understudy.train.profile import LARGEST_TRACE, Profile

FOLDER = "profile"
"""The folder of the artifacts, and the prefix of the metrics' names."""


def send_profile(server: OverMlflow, run_id: str, run: Run, step: str) -> None:
    """Send a training's profile to the training's run in MLflow; do nothing if the pipeline run has none.

    Only the traces of the first and the slowest rank are sent, unless they are too large: a job may have thousands.

    Raises:
        UnderstudyError: a rank left something other than a file.
    """
    path = run.profiles / f"{step}.json"
    profile: Profile | None = read_json(path)
    if profile is None:
        return
    at = int(1000 * path.stat().st_mtime)  # MLflow stores a repeated value with the same timestamp only once
    server.log(run_id, [Value(name, value, at, 0) for name, value in _figures(profile).items()])
    staged = Path(tempfile.mkdtemp(prefix="profile-", dir=run.folder))
    try:
        (staged / f"{step}.json").write_text(json.dumps(profile, indent=1))
        for rank in sorted({0, profile["slowest"]}):
            _copy(run.folder / "logs" / step / f"trace-{rank}.json.gz", staged)
        server.client.log_artifacts(run_id, str(staged), FOLDER)
    finally:
        shutil.rmtree(staged)


def _figures(profile: Profile) -> dict[str, float]:
    mfu = {} if profile["mfu"] is None else {"mfu": profile["mfu"]}
    figures = {
        "step_seconds": profile["seconds"],
        "recorded_step_seconds": profile["recorded_seconds"],
        "sent_seconds": profile["sent"],
        "targets_per_second": profile["targets_per_second"],
        "flop": profile["flop"],
        **{f"{kind}_seconds": seconds for kind, seconds in profile["kinds"].items()},
        **mfu,
    }
    return {f"{FOLDER}/{name}": value for name, value in figures.items()}


def _copy(trace: Path, folder: Path) -> None:
    """Copy a trace as bytes, without following links: ranks wrote it."""
    try:
        with opened(trace) as stream:
            content = stream.read(LARGEST_TRACE + 1)
    except FileNotFoundError:
        return
    if len(content) <= LARGEST_TRACE:
        (folder / trace.name).write_bytes(content)
