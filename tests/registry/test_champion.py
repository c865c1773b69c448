import os
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.registry.submitted import HISTORY, Pipeline, connect
from understudy.errors import UnderstudyError
from understudy.registry.champion import champion, fetch, needed_digests, registered_digests
from understudy.registry.foreign import Foreign
from understudy.registry.names import DIGEST


@pytest.fixture
def client(local: str) -> MlflowClient:
    return connect(local)


def test_the_champions_bytes_come_back_as_the_same_object(pipeline: Pipeline, client: MlflowClient) -> None:
    registration = pipeline.register()
    client.set_registered_model_alias(registration.name, "champion", registration.version)
    current = champion(pipeline.uri, registration.name)
    assert current is not None
    assert current.digest == pipeline.model(b"student", HISTORY)
    pipeline.store.objects.set_aside(current.digest)
    folder = pipeline.store.folder / "work" / "fetched"
    folder.mkdir()
    manifest = fetch(pipeline.uri, current, folder)
    assert pipeline.store.objects.publish(folder, manifest.kind, manifest.inputs, manifest.facts) == current.digest


def test_a_changed_champion_is_refused(pipeline: Pipeline, client: MlflowClient) -> None:
    registration = pipeline.register()
    client.set_registered_model_alias(registration.name, "champion", registration.version)
    current = champion(pipeline.uri, registration.name)
    assert current is not None
    source = client.get_model_version(registration.name, registration.version).source
    logged = client.get_logged_model(source.removeprefix("models:/"))
    path = logged.artifact_location.removeprefix("file://") + f"/artifacts/{current.digest}/model.safetensors"
    with open(path, "r+b") as stream:
        stream.write(b"X")
    folder = pipeline.store.folder / "work" / "fetched"
    folder.mkdir()
    with pytest.raises(UnderstudyError, match=r"not those of its tag understudy\.digest"):
        fetch(pipeline.uri, current, folder)


def test_a_champion_of_somebody_elses_cannot_be_measured(pipeline: Pipeline, client: MlflowClient) -> None:
    registration = pipeline.register()
    client.create_registered_model("theirs")
    source = client.get_model_version(registration.name, registration.version).source
    client.create_model_version("theirs", source)
    client.set_registered_model_alias("theirs", "champion", "1")
    assert champion(pipeline.uri, "theirs") == Foreign("theirs", "1")
    for tag in ("/somewhere/else", "../" * 30, "A" * 64):
        client.set_model_version_tag("theirs", "1", DIGEST, tag)
        with pytest.raises(UnderstudyError, match=r"understudy did not make it and cannot measure it"):
            champion(pipeline.uri, "theirs")


def test_the_answer_changes_when_the_champion_does(pipeline: Pipeline, client: MlflowClient) -> None:
    registration = pipeline.register()
    assert champion(pipeline.uri, registration.name) is None
    client.set_registered_model_alias(registration.name, "champion", registration.version)
    assert champion(pipeline.uri, registration.name) is not None
    client.delete_registered_model_alias(registration.name, "champion")
    assert champion(pipeline.uri, registration.name) is None


def test_gc_learns_the_digests_of_students_and_teachers(pipeline: Pipeline) -> None:
    pipeline.register()
    digests = {pipeline.model(b"student", HISTORY), pipeline.model(b"teacher", HISTORY)}
    assert digests <= registered_digests(pipeline.uri)


def test_gc_asks_every_registry_that_models_went_to(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.register()
    student = pipeline.model(b"student", HISTORY)
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"
    assert needed_digests(elsewhere, tmp_path, {}) == set()
    assert student in needed_digests(elsewhere, tmp_path, {pipeline.uri: tmp_path / "server.json"})
    missing = {f"sqlite:///{tmp_path}/gone.db": tmp_path / "gone.json"}
    for uri in (pipeline.uri, *missing):
        with pytest.raises(UnderstudyError, match=r"the file is gone\n.* for good, .*remove .*gone\.json"):
            needed_digests(uri, tmp_path, missing)


def test_an_invalid_digest_in_a_tag_names_no_object(pipeline: Pipeline, client: MlflowClient) -> None:
    registration = pipeline.register()
    before = registered_digests(pipeline.uri)
    for value in ("", "ab" + "x" * 300, "../../etc", "A" * 64):
        client.set_model_version_tag(registration.name, registration.version, "understudy.teacher", value)
        assert registered_digests(pipeline.uri) <= before


def test_only_the_server_in_use_is_sent_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    uris = list[str]()

    def digests(uri: str) -> set[str]:
        uris.append(uri)
        return {"a" * 64}

    monkeypatch.setattr("understudy.registry.champion.registered_digests", digests)
    used, foreign = "https://mlflow.example.com", "https://evil.example.com:8443/mlflow"
    servers = {used: tmp_path / "used.json", foreign: tmp_path / "other.json", "http://mlflow.example.com": tmp_path}
    needed_digests("https://ann:secret@mlflow.example.com", tmp_path, servers)
    first_uri, *later_uris = uris
    assert first_uri == "https://ann:secret@mlflow.example.com"
    assert later_uris == [used, "https://@evil.example.com:8443/mlflow", "http://@mlflow.example.com"]


def test_gc_does_not_believe_a_server_that_shows_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("understudy.registry.champion.registered_digests", lambda _: set())
    server, file = "https://mlflow.example.com", tmp_path / "server.json"
    with pytest.raises(UnderstudyError, match=r"none is shown; .*\n.* needs nothing .*, remove .*json"):
        needed_digests(server, tmp_path, {server: file})


def test_without_a_database_nothing_is_registered(tmp_path: object) -> None:
    assert registered_digests(f"sqlite:///{tmp_path}/mlflow.db") == set()
    assert champion(f"sqlite:///{tmp_path}/mlflow.db", "digits") is None
    assert not os.path.exists(f"{tmp_path}/mlflow.db")
