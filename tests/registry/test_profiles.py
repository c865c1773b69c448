"""A training's profile in MLflow: figures, and files that are bytes."""

import gzip
import json
from pathlib import Path

import pytest

from tests.registry.submitted import Pipeline, connect
from tests.unit.train.profiles import profile
from understudy.errors import UnderstudyError
from understudy.registry import profiles
from understudy.store.files import read_json, write_json


@pytest.fixture
def traces(pipeline: Pipeline) -> Path:
    """Those of four ranks of the distillation, which is profiled."""
    pipeline.run.profiles.mkdir()
    write_json(pipeline.run.profiles / "distill.json", profile(mfu=0.4, slowest=2))
    folder = pipeline.run.folder / "logs" / "distill"
    folder.mkdir()
    for rank in range(4):
        (folder / f"trace-{rank}.json.gz").write_bytes(gzip.compress(b"{}"))
    return folder


def artifacts(pipeline: Pipeline, step: str) -> set[str]:
    run_id = read_json(pipeline.run.folder / "mlflow" / f"{step}.json")["run_id"]
    return {artifact.path for artifact in connect(pipeline.uri).list_artifacts(run_id, "profile")}


def test_figures_and_the_first_and_slowest_ranks_traces_are_sent(pipeline: Pipeline, traces: Path) -> None:
    pipeline.register()
    client = connect(pipeline.uri)
    run_id = read_json(pipeline.run.folder / "mlflow" / "distill.json")["run_id"]
    metrics = client.get_run(run_id).data.metrics
    assert metrics["profile/step_seconds"] == 0.08
    assert metrics["profile/backward_seconds"] == 0.05
    assert metrics["profile/mfu"] == 0.4
    names = ("distill.json", "trace-0.json.gz", "trace-2.json.gz")
    assert artifacts(pipeline, "distill") == {f"profile/{name}" for name in names}
    artifact = Path(client.download_artifacts(run_id, "profile/distill.json"))
    assert json.loads(artifact.read_text()) == profile(mfu=0.4, slowest=2)
    assert artifacts(pipeline, "control") == set()
    assert not list(pipeline.run.folder.glob("profile-*"))


def test_a_trace_that_is_too_large_stays_behind(
    pipeline: Pipeline, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "LARGEST_TRACE", 64)
    (traces / "trace-0.json.gz").write_bytes(b"." * 65)
    pipeline.register()
    assert artifacts(pipeline, "distill") == {"profile/distill.json", "profile/trace-2.json.gz"}


def test_a_link_instead_of_a_trace_is_refused(pipeline: Pipeline, traces: Path) -> None:
    (traces / "trace-0.json.gz").unlink()
    (traces / "trace-0.json.gz").symlink_to("/etc/hostname")
    with pytest.raises(UnderstudyError, match="is not a regular file"):
        pipeline.register()
