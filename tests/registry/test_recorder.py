"""A run in MLflow while it goes on."""

import errno
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests import ROOT
from tests.registry.submitted import HISTORY, RECIPE, Pipeline, Server, connect
from understudy.errors import Stopped, UnderstudyError
from understudy.registry import recorder as recording
from understudy.registry.client import server_at
from understudy.registry.recorder import Recorder, close_dead, close_ended
from understudy.registry.tracking import Value
from understudy.store.files import read_json


@pytest.fixture(params=["local", "server"])
def uri(request: pytest.FixtureRequest) -> str:
    """The local backend, which MLflow's client is asked for, and a server, which is asked over REST."""
    backend = request.getfixturevalue(request.param)
    return backend.uri if isinstance(backend, Server) else str(backend)


@pytest.fixture
def client(uri: str) -> MlflowClient:
    return connect(uri)


@pytest.fixture
def pipeline(tmp_path: Path, uri: str) -> Pipeline:
    name = f"{tmp_path.name}-{tmp_path.parent.name}"
    return Pipeline(tmp_path, uri, {**RECIPE, "register": {"model": name, "experiment": name}})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "EVERY", 0.05)
    monkeypatch.setattr(recording, "RETRY", 0.05)


def recorder(pipeline: Pipeline) -> Recorder:
    return Recorder(pipeline.run, pipeline.uri, pipeline.recipe.experiment, {"understudy.version": "0"})


def opened(pipeline: Pipeline, *step: str) -> str:
    return recorder(pipeline).open(server_at(pipeline.uri), *step)


def append(path: Path, points: list[dict[str, Any]]) -> None:
    with path.open("a") as stream:
        stream.writelines(json.dumps(point) + "\n" for point in points)


def run_id(pipeline: Pipeline, step: str) -> str:
    return str(read_json(pipeline.run.folder / "mlflow" / f"{step}.json")["run_id"])


def curve(client: MlflowClient, run: str, key: str = "loss") -> list[tuple[int, float]]:
    return sorted((metric.step, metric.value) for metric in client.get_metric_history(run, key))


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.time() + 120
    while not true():
        assert time.time() < deadline
        time.sleep(0.05)


def test_points_arrive_while_training_goes_on(pipeline: Pipeline, client: MlflowClient, tmp_path: Path) -> None:
    metrics, nested = tmp_path / "metrics.jsonl", pipeline.run.folder / "mlflow" / "teacher.json"
    with recorder(pipeline).follow("teacher", metrics):
        append(metrics, [{**HISTORY[0], "time": 1e9, "rate": 500.0, "memory": 1e6}])
        wait_until(lambda: nested.exists() and len(curve(client, run_id(pipeline, "teacher"))) == 1)
        assert client.get_run(run_id(pipeline, "teacher")).info.status == "RUNNING"
        append(metrics, HISTORY[1:])
    recorded = client.get_run(run_id(pipeline, "teacher"))
    assert recorded.info.status == "FINISHED"
    assert curve(client, recorded.info.run_id) == [(point["step"], point["loss"]) for point in HISTORY]
    assert curve(client, recorded.info.run_id, "images_per_second") == [(1, 500.0)]
    assert curve(client, recorded.info.run_id, "memory_bytes") == [(1, 1e6)]
    assert client.get_metric_history(recorded.info.run_id, "images_per_second")[0].timestamp == 10**12


def test_a_resumed_training_sends_no_step_twice(pipeline: Pipeline, client: MlflowClient, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    with recorder(pipeline).follow("teacher", metrics):
        append(metrics, HISTORY[:10])
    append(metrics, HISTORY[8:10])
    with recorder(pipeline).follow("teacher", metrics):
        append(metrics, HISTORY[8:20])
    assert curve(client, run_id(pipeline, "teacher")) == [(point["step"], point["loss"]) for point in HISTORY[:20]]


def test_registering_fills_in_missing_points(pipeline: Pipeline, client: MlflowClient, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    append(metrics, HISTORY[:10])
    with recorder(pipeline).follow("distill", metrics):
        pass
    pipeline.register()
    assert curve(client, run_id(pipeline, "distill")) == [(point["step"], point["loss"]) for point in HISTORY]


@pytest.mark.parametrize(("error", "status"), [(Stopped("stop"), "KILLED"), (ValueError("no"), "FAILED")])
def test_how_a_training_ends_is_how_its_runs_end(
    pipeline: Pipeline, client: MlflowClient, tmp_path: Path, error: Exception, status: str
) -> None:
    with pytest.raises(type(error)), recorder(pipeline).follow("teacher", tmp_path / "none"):
        raise error
    assert client.get_run(run_id(pipeline, "teacher")).info.status == status
    parent = read_json(pipeline.run.folder / "mlflow.json")["run_id"]
    assert client.get_run(parent).info.status == status
    with recorder(pipeline).follow("teacher", tmp_path / "none"):
        pass
    assert client.get_run(parent).info.status == "RUNNING"


def test_a_server_that_is_away_does_not_stop_a_training(make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{probe.getsockname()[1]}"
    mlflow_recorder = recorder(make_pipeline(uri))
    with mlflow_recorder.follow("teacher", tmp_path / "metrics.jsonl"):
        append(tmp_path / "metrics.jsonl", HISTORY)
        wait_until(lambda: mlflow_recorder.problem is not None)
    assert mlflow_recorder.problem is not None
    assert uri in mlflow_recorder.problem


@pytest.mark.parametrize("error", [UnderstudyError("away"), OSError(errno.ENOSPC, "No space left on device")])
def test_points_that_failed_are_sent_when_the_server_is_back(
    pipeline: Pipeline, client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def away(*_: object, **__: object) -> None:
        raise error

    mlflow_recorder, metrics = recorder(pipeline), tmp_path / "metrics.jsonl"
    with mlflow_recorder.follow("teacher", metrics):
        wait_until((pipeline.run.folder / "mlflow" / "teacher.json").exists)
        with monkeypatch.context() as patch:
            patch.setattr(type(server_at(pipeline.uri)), "log", away)
            append(metrics, HISTORY)
            wait_until(lambda: mlflow_recorder.problem is not None)
    assert mlflow_recorder.problem is None
    assert curve(client, run_id(pipeline, "teacher")) == [(point["step"], point["loss"]) for point in HISTORY]


def test_steps_that_race_share_one_parent(pipeline: Pipeline, client: MlflowClient) -> None:
    run_ids: list[str] = []
    threads = [threading.Thread(target=lambda: run_ids.append(opened(pipeline)), name=f"{n}") for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(run_ids) == 4
    assert len(set(run_ids)) == 1
    experiment = client.get_run(run_ids[0]).info.experiment_id
    assert len(client.search_runs([experiment])) == 1


def test_a_run_that_was_made_but_not_written_down_is_found_again(pipeline: Pipeline, client: MlflowClient) -> None:
    first = opened(pipeline)
    (pipeline.run.folder / "mlflow.json").unlink()
    assert opened(pipeline) == first


@pytest.mark.parametrize(("code", "status"), [(130, "KILLED"), (1, "FAILED"), (0, "FINISHED"), (3, "FINISHED")])
def test_runs_that_nobody_works_for_are_closed(
    pipeline: Pipeline, client: MlflowClient, code: int, status: str
) -> None:
    parent, nested = opened(pipeline), opened(pipeline, "teacher")
    assert close_dead(pipeline.store, pipeline.uri) == 0
    pipeline.run.end(code)
    assert close_dead(pipeline.store, "http://another:5000") == 0
    assert close_dead(pipeline.store, pipeline.uri) == 1
    assert {client.get_run(run).info.status for run in (parent, nested)} == {status}
    assert close_dead(pipeline.store, pipeline.uri) == 0


def test_a_run_that_goes_on_after_its_record_was_closed_is_closed_again(
    pipeline: Pipeline, client: MlflowClient
) -> None:
    parent = opened(pipeline)
    pipeline.run.end(130)
    assert close_dead(pipeline.store, pipeline.uri) == 1
    pipeline.run.take_up()
    assert opened(pipeline) == parent
    assert client.get_run(parent).info.status == "RUNNING"
    pipeline.run.end(0)
    assert close_dead(pipeline.store, pipeline.uri) == 1
    assert client.get_run(parent).info.status == "FINISHED"


def test_a_run_closes_its_own_record_and_no_other(pipeline: Pipeline, client: MlflowClient) -> None:
    close_ended(pipeline.run, pipeline.uri)
    parent, nested = opened(pipeline), opened(pipeline, "teacher")
    pipeline.run.end(130)
    close_ended(pipeline.run, "http://another:5000")
    assert client.get_run(parent).info.status == "RUNNING"
    close_ended(pipeline.run, pipeline.uri)
    assert {client.get_run(run).info.status for run in (parent, nested)} == {"KILLED"}
    assert close_dead(pipeline.store, pipeline.uri) == 0


def test_long_parameters_are_cut(make_pipeline: Callable[..., Pipeline], uri: str, client: MlflowClient) -> None:
    model = {"type": "vit", "config": {"note": "x" * 10_000}}
    pipeline = make_pipeline(uri, {**RECIPE, "name": "long", "teacher": {"model": model, "train": {"steps": 1}}})
    params = client.get_run(opened(pipeline)).data.params
    assert len(params["teacher.model.config.note"]) == 6000


def test_a_server_is_written_to_without_importing_mlflow(server: Server, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from tests.registry.submitted import Pipeline; from understudy.registry.recorder import Recorder\n"
        f"pipeline = Pipeline(Path({str(tmp_path)!r}), {server.uri!r})\n"
        "found = Recorder(pipeline.run, pipeline.uri, 'digits', {})\n"
        "with found.follow('teacher', Path('none')): pass\n"
        "print(found.problem, [name for name in ('mlflow', 'kfp', 'torch') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, cwd=ROOT, text=True) == "None []\n"


def test_an_experiment_that_was_deleted_is_named(uri: str, client: MlflowClient, tmp_path: Path) -> None:
    name = f"gone-{tmp_path.name}"
    experiment = server_at(uri).experiment(name)
    assert server_at(uri).experiment(name) == experiment
    client.delete_experiment(experiment)
    with pytest.raises(UnderstudyError, match=f"the experiment {name} was deleted; restore it there"):
        server_at(uri).experiment(name)


def test_a_long_curve_is_read_completely(pipeline: Pipeline) -> None:
    server, opened_run = server_at(pipeline.uri), opened(pipeline, "teacher")
    for start in range(0, 26_000, 1000):
        server.log(opened_run, [Value("loss", 1.0, 10**12 + step, step) for step in range(start, start + 1000)])
    assert server.steps(opened_run) == set(range(26_000)), "MLflow answers in pages of 25,000"


def test_a_watcher_that_has_to_go_leaves_the_runs_to_the_next_one(
    pipeline: Pipeline, client: MlflowClient, tmp_path: Path
) -> None:
    def watch() -> None:
        with recorder(pipeline).follow("teacher", tmp_path / "none"):
            wait_until((pipeline.run.folder / "mlflow" / "teacher.json").exists)
            raise SystemExit(130)

    with pytest.raises(SystemExit):
        watch()
    parent = str(read_json(pipeline.run.folder / "mlflow.json")["run_id"])
    assert {client.get_run(run).info.status for run in (parent, run_id(pipeline, "teacher"))} == {"RUNNING"}


@pytest.mark.parametrize("exists", [True, False])
def test_a_run_lies_below_the_one_that_kfp_s_own_mlflow_has_for_the_pipeline(
    pipeline: Pipeline, client: MlflowClient, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """KFP's plug-in makes a run for the pipeline, one below it for each task, and names the task's to the task."""
    name = f"kfp-{pipeline.recipe.experiment}"
    experiment = client.create_experiment(name)
    outer = client.create_run(experiment).info.run_id
    task = client.create_run(experiment, tags={"mlflow.parentRunId": outer}).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", task if exists else "0" * 32)
    parent, nested = opened(pipeline), opened(pipeline, "teacher")
    parent_run = client.get_run(parent)
    assert parent_run.data.tags.get("mlflow.parentRunId") == (outer if exists else None)
    assert (parent_run.info.experiment_id == experiment) == exists, "MLflow shows a tree within an experiment"
    below = client.get_run(nested)
    assert below.data.tags["mlflow.parentRunId"] == parent
    assert below.info.experiment_id == parent_run.info.experiment_id
