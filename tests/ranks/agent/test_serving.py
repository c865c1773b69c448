"""A rank that scores examples through a version: the environment of its process, and its end."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.jobs.specs import evaluation_spec
from understudy.agent import serving
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.agent.surroundings import Surroundings
from understudy.errors import Stopped, UnderstudyError
from understudy.jobs.payload import Serving
from understudy.jobs.specification import JobSpec

VERSION = """
import json, os, sys, time
from pathlib import Path

folder, output = map(Path, sys.argv[1:])
(output / "environment.json").write_text(json.dumps(dict(os.environ)))
if (folder / "endless").exists():
    time.sleep(600)
print("the output of its model")
"""


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    (tmp_path / "served").mkdir()
    (tmp_path / "job").mkdir()
    job = replace(evaluation_spec(tmp_path / "job"), role="serving", logs=str(tmp_path / "logs"))
    return replace(job, payload=Serving(folder=str(tmp_path / "served")))


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that runs a model's code, replaced by one that records its environment."""
    (tmp_path / "shows.py").write_text(VERSION)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(serving, "LOADER", "shows")


def serve(spec: JobSpec) -> None:
    assert isinstance(spec.payload, Serving)
    serving.serve(spec, spec.payload, Surroundings(spec, HeartbeatWriter(spec, 0)))


@pytest.mark.usefixtures("code")
def test_a_versions_code_sees_no_credentials(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "MLFLOW_TRACKING_URI", "UNDERSTUDY_ANY")
    for name in secrets:
        monkeypatch.setenv(name, "a secret")
    spec.output.mkdir(parents=True)
    (spec.output / "half").touch()
    serve(spec)
    assert [path.name for path in spec.output.iterdir()] == ["environment.json"]
    environment = json.loads((spec.output / "environment.json").read_text())
    assert "a secret" not in environment.values()
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert (spec.rank_logs / "served.log").read_text() == "the output of its model\n"


@pytest.mark.usefixtures("code")
def test_a_stop_ends_it_and_its_process(spec: JobSpec) -> None:
    assert isinstance(spec.payload, Serving)
    (Path(spec.payload.folder) / "endless").touch()
    spec.stop_file.touch()
    with pytest.raises(Stopped, match="scoring was stopped"):
        serve(spec)


def test_a_version_that_cannot_be_loaded_is_an_error_with_its_last_words(spec: JobSpec) -> None:
    with pytest.raises(UnderstudyError, match=r"cannot be loaded as its users load it \(.+\), so it is not registered"):
        serve(spec)
