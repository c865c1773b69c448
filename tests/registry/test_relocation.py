"""A home that was moved or copied, with a version that was registered before."""

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import mlflow
import numpy as np
import pytest

from tests.registry.saved_models import VIT, describe_images, save
from tests.registry.submitted import Pipeline, connect
from understudy.errors import InputError, UnderstudyError
from understudy.registry.champion import champion as champion_of
from understudy.registry.champion import fetch, needed_digests, registered_digests
from understudy.registry.client import mlflow_at
from understudy.registry.relocation import LOCATIONS, location_beside, relocate
from understudy.registry.server import identity, tracking_uri
from understudy.store.files import sha256


def pipeline_in(home: Path) -> Pipeline:
    return Pipeline(home, tracking_uri(home, None))


@pytest.fixture(scope="module")
def first_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in a folder with a blank, whose registry holds version 1 of digits."""
    parent = tmp_path_factory.mktemp("first")
    folder = parent / "a home"
    folder.mkdir()
    pipeline = pipeline_in(folder)
    pipeline.register(student=pipeline.adopt(save(parent / "vit", VIT, describe_images())))
    pipeline.store.remember_server(identity(pipeline.uri, folder))
    return folder


@pytest.fixture
def home(first_home: Path, tmp_path: Path) -> Path:
    """One such home for each test."""
    folder = tmp_path / "a home"
    shutil.copytree(first_home, folder)
    relocate(folder / "mlflow.db")
    return folder


def answers(home: Path, version: str) -> list[str]:
    connect(tracking_uri(home, None))
    model = mlflow.pyfunc.load_model(f"models:/digits/{version}")
    return list(model.predict(np.zeros((2, 1, 8, 8), dtype=np.uint8))["label"])


def locations(database: Path) -> set[str]:
    connection = sqlite3.connect(database)
    values = {
        location for table, column in LOCATIONS for (location,) in connection.execute(f"SELECT {column} FROM {table}")
    }
    connection.close()
    return {location for location in values if location and not location.startswith("models:/")}


def state(folder: Path) -> dict[str, str]:
    return {str(path): sha256(path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_moved_home_reads_its_versions_and_creates_nothing_at_its_old_path(home: Path, tmp_path: Path) -> None:
    before, moved = answers(home, "1"), tmp_path / "elsewhere" / "b"
    moved.parent.mkdir()
    home.rename(moved)
    assert answers(moved, "1") == before
    again = pipeline_in(moved)
    registration = again.register(weights=b"another student")
    assert registration.version == "2"
    prefix = location_beside(moved / "mlflow.db")
    assert all(location.startswith(prefix) for location in locations(moved / "mlflow.db"))
    assert (moved / "mlartifacts" / registration.parent_run_id).is_dir()
    assert not home.exists()


def test_a_copy_leaves_the_original_as_it_was(home: Path, tmp_path: Path) -> None:
    copy, before = tmp_path / "b", state(home)
    shutil.copytree(home, copy)
    assert pipeline_in(copy).register(weights=b"another student").version == "2"
    assert len(answers(copy, "1")) == 2
    assert state(home) == before
    assert not [location for location in locations(copy / "mlflow.db") if "a%20home" in location]


def test_a_moved_home_keeps_its_champion_and_the_digests_that_gc_needs(home: Path, tmp_path: Path) -> None:
    connect(tracking_uri(home, None)).set_registered_model_alias("digits", "champion", "1")
    registered = registered_digests(tracking_uri(home, None))
    home = home.rename(tmp_path / "b")
    pipeline, uri = pipeline_in(home), tracking_uri(home, None)
    champion = champion_of(uri, "digits")
    assert champion is not None
    (tmp_path / "fetched").mkdir()
    fetch(uri, champion, tmp_path / "fetched")
    assert (tmp_path / "fetched" / "model.safetensors").exists()
    assert needed_digests(tracking_uri(tmp_path / "other", None), home, pipeline.store.servers) == registered


def test_processes_that_find_a_moved_home_at_once_rewrite_it_once(home: Path, tmp_path: Path) -> None:
    database = home.rename(tmp_path / "b") / "mlflow.db"
    threads = [threading.Thread(target=relocate, args=(database,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    location, once = location_beside(database), database.read_bytes()
    assert {location.partition("/mlartifacts")[0] for location in locations(database)} == {location.rpartition("/")[0]}
    relocate(database)
    assert database.read_bytes() == once


def test_a_database_without_its_artifacts_is_refused_and_left_as_it_is(home: Path, tmp_path: Path) -> None:
    moved = tmp_path / "b" / "mlflow.db"
    moved.parent.mkdir()
    shutil.copy(home / "mlflow.db", moved)
    before = moved.read_bytes()
    with pytest.raises(InputError, match=f"still in {home}/mlartifacts; move or copy that folder to {moved.parent}/"):
        relocate(moved)
    assert moved.read_bytes() == before
    shutil.copytree(home / "mlartifacts", moved.parent / "mlartifacts")
    relocate(moved)
    assert len(answers(moved.parent, "1")) == 2


def test_a_copy_from_a_running_training_is_accepted_despite_later_logs(tmp_path: Path) -> None:
    original, copy, database = tmp_path / "a", tmp_path / "b", tmp_path / "b" / "mlflow.db"
    server = mlflow_at(tracking_uri(original, None))
    run = server.make_run(server.experiment("digits"), 0, {}, "run")
    shutil.copytree(original, copy)
    server.client.log_text(run, "logged since", "report.html")
    relocate(database)
    prefix = location_beside(database)
    assert all(location.startswith(prefix) for location in locations(database))
    assert not (copy / "mlartifacts").exists()


def test_a_database_whose_ended_run_left_its_artifacts_behind_is_refused(tmp_path: Path) -> None:
    original, copy = tmp_path / "a", tmp_path / "b"
    server = mlflow_at(tracking_uri(original, None))
    run = server.make_run(server.experiment("digits"), 0, {}, "run")
    server.client.log_text(run, "logged before", "report.html")
    server.end(run, "FINISHED")
    copy.mkdir()
    shutil.copy(original / "mlflow.db", copy)
    with pytest.raises(InputError, match="its artifacts are still in"):
        relocate(copy / "mlflow.db")


def test_a_home_is_moved_although_its_old_path_has_a_file_by_now(home: Path, tmp_path: Path) -> None:
    database = home.rename(tmp_path / "b") / "mlflow.db"
    home.write_text("no home")
    relocate(database)
    assert len(answers(database.parent, "1")) == 2


def test_a_home_that_is_reached_over_a_link_stays_as_it_is(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    before = locations(home / "mlflow.db")
    relocate(tmp_path / "link" / "mlflow.db")
    assert locations(home / "mlflow.db") == before


def test_an_experiment_that_was_put_elsewhere_on_purpose_stays_there(home: Path, tmp_path: Path) -> None:
    connect(tracking_uri(home, None)).create_experiment("own", artifact_location=str(tmp_path / "own"))
    home = home.rename(tmp_path / "b")
    relocate(home / "mlflow.db")
    assert connect(tracking_uri(home, None)).get_experiment_by_name("own").artifact_location == str(tmp_path / "own")


@pytest.mark.parametrize("other_location", ["s3://bucket/team/mlartifacts", "file:///data/team/mlartifacts"])
def test_an_experiment_at_another_path_of_that_name_stays_there(
    home: Path, tmp_path: Path, other_location: str
) -> None:
    connect(tracking_uri(home, None)).create_experiment("team", artifact_location=other_location)
    before = (home / "mlflow.db").read_bytes()
    relocate(home / "mlflow.db")
    assert (home / "mlflow.db").read_bytes() == before
    database = home.rename(tmp_path / "b") / "mlflow.db"
    relocate(database)
    prefix = location_beside(database)
    assert {location for location in locations(database) if not location.startswith(prefix)} == {other_location}


def test_a_home_whose_default_experiment_lies_anywhere_is_found_by_its_other_experiments(
    home: Path, tmp_path: Path
) -> None:
    client = connect(tracking_uri(home, None))
    client.create_experiment("team", artifact_location="s3://bucket/team/mlartifacts")
    with closing(sqlite3.connect(home / "mlflow.db")) as connection, connection:  # as understudy 0.1 made it
        connection.execute("UPDATE experiments SET artifact_location = '/anywhere/mlruns/0' WHERE experiment_id = 0")
    database = home.rename(tmp_path / "b") / "mlflow.db"
    relocate(database)
    assert len(answers(tmp_path / "b", "1")) == 2
    prefix = location_beside(database)
    unmoved = {location for location in locations(database) if not location.startswith(prefix)}
    assert unmoved == {"/anywhere/mlruns/0", "s3://bucket/team/mlartifacts"}


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database at all, and long enough to be read as one" * 10)
    with pytest.raises(UnderstudyError, match=r"mlflow\.db: MLflow's database cannot be used"):
        relocate(tmp_path / "mlflow.db")
    (tmp_path / "mlflow.db").write_bytes(b"")
    relocate(tmp_path / "mlflow.db")
