"""A student's files on their way to the registry."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.registry.submitted import HISTORY, RECIPE, Pipeline, Server, connect
from understudy.errors import UnderstudyError
from understudy.registry import new_version
from understudy.registry.client import server_at
from understudy.registry.register import Registration
from understudy.registry.version_files import intact_manifest
from understudy.store.objects import MANIFEST

WEIGHTS = "model.safetensors"
MIB = 2**20


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Within it this process cannot write a larger file, wherever that were."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_weights_are_sent_from_the_store_and_described_like_the_other_files(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.models import Model

    staged: list[int] = []
    send = MlflowClient.log_model_artifacts

    def sent(client: MlflowClient, model_id: str, local_dir: str, artifact_path: str | None = None) -> None:
        staged.append(sum(path.stat().st_size for path in Path(local_dir).rglob("*") if path.is_file()))
        send(client, model_id, local_dir, artifact_path)

    monkeypatch.setattr(MlflowClient, "log_model_artifacts", sent)
    digest = pipeline.model(b"weights " * MIB, HISTORY)
    registration = pipeline.register(student=digest)
    assert staged[0] < MIB
    client, stored = connect(pipeline.uri), pipeline.store.objects.path(digest)
    version_folder = Path(
        client.get_model_version_download_uri(registration.name, registration.version).removeprefix("file://")
    )
    assert intact_manifest(version_folder / "artifacts" / digest, digest)
    metadata = Model.load(str(version_folder))
    named = metadata.flavors["python_function"]["artifacts"]["model"]
    assert named == {"path": f"artifacts/{digest}", "uri": str(stored)}
    assert 0 < metadata.model_size_bytes - sum(path.stat().st_size for path in stored.iterdir()) < staged[0]


@pytest.mark.full
def test_weights_go_to_a_server_without_a_copy_aside(
    server: Server, make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is scored as a copy that comes back from the server."""
    pipeline = make_pipeline(server.uri, {**RECIPE, "name": "large"})
    digest = pipeline.model(os.urandom(4) * MIB, HISTORY)
    send = new_version.send_model

    def limited(*arguments: Any) -> None:
        with no_file_above(2 * MIB):
            send(*arguments)

    monkeypatch.setattr(new_version, "send_model", limited)
    pipeline.register(student=digest)
    (sent,) = server.folder.glob(f"files/**/artifacts/{digest}")
    assert intact_manifest(sent, digest)


def refused(pipeline: Pipeline, digest: str, name: str) -> None:
    """Whether a student is refused, with the damaged file named and no version made."""
    with pytest.raises(UnderstudyError, match=rf"{digest}/{name}: was changed .* store verify {digest[:12]} shows"):
        pipeline.register(student=digest)
    assert not versions(pipeline)


def versions(pipeline: Pipeline) -> list[str]:
    return [version.number for version in server_at(pipeline.uri).versions(f"name = '{pipeline.recipe.model_name}'")]


def files_of(client: MlflowClient, pipeline: Pipeline) -> set[str]:
    """The names of all files of logged models in the run's experiment."""
    experiment = client.get_experiment_by_name(pipeline.recipe.experiment).experiment_id
    (logged,) = client.search_logged_models([experiment])
    folder = Path(logged.artifact_location.removeprefix("file://"))
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", [WEIGHTS, MANIFEST])
def test_a_file_that_differs_from_its_digest_is_not_sent(pipeline: Pipeline, name: str) -> None:
    digest = pipeline.model(b"student", HISTORY)
    path = pipeline.store.objects.path(digest) / name
    whole_bytes = path.read_bytes()
    path.write_bytes(whole_bytes.swapcase())
    refused(pipeline, digest, name)
    assert name not in files_of(connect(pipeline.uri), pipeline)
    path.write_bytes(whole_bytes)
    registration: Registration = pipeline.register(student=digest)
    assert versions(pipeline) == [registration.version]


def test_a_file_that_changes_while_it_is_sent_is_no_version(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = pipeline.model(b"student", HISTORY)
    send = MlflowClient.log_model_artifact

    def changed(client: MlflowClient, model_id: str, local_path: str, artifact_path: str | None = None) -> None:
        if local_path.endswith(WEIGHTS):
            Path(local_path).write_bytes(b"another")
        send(client, model_id, local_path, artifact_path)

    monkeypatch.setattr(MlflowClient, "log_model_artifact", changed)
    refused(pipeline, digest, WEIGHTS)
