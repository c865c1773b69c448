"""The model's own files on their way to the registry: from the store's object itself, each one as its manifest says.

Nothing is copied aside, and no file is held in memory: MLflow's client sends a file as it reads it. A file is hashed
just before, when the system has its bytes in memory for the second reading, and refused if it is touched until then.
"""

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from understudy.errors import UnderstudyError
from understudy.store.files import hash_file, identity, sha256
from understudy.store.objects import MANIFEST, Manifest

if TYPE_CHECKING:
    from mlflow import MlflowClient


def place_of(digest: str) -> str:
    """The folder of a model's own files among a version's files."""
    return f"artifacts/{digest}"


def send_model(client: "MlflowClient", logged_model: str, model: Path, digest: str) -> None:
    """Send a model's files, its manifest included, so that the store can take it back from the registry.

    Args:
        client: MLflow's.
        logged_model: the id of MLflow's logged model that gets them.
        model: the store's object.
        digest: the object's.

    Raises:
        UnderstudyError: a file is not what the object's digest says; it was not sent.
    """
    for name, expected in _files(model, digest):
        path = model / name
        before = identity(path)
        if hash_file(path) != expected:
            raise _changed(path, digest)
        client.log_model_artifact(logged_model, str(path), str(PurePosixPath(place_of(digest), name).parent))
        if identity(path) != before:
            raise _changed(path, digest)


def _files(model: Path, digest: str) -> Iterator[tuple[str, str]]:
    """Each file of an object, and its SHA-256."""
    encoded = (model / MANIFEST).read_bytes()
    if sha256(encoded) != digest:
        raise _changed(model / MANIFEST, digest)
    for name, _, expected in Manifest.decode(json.loads(encoded)).files:
        yield name, expected
    yield MANIFEST, digest


def _changed(path: Path, digest: str) -> UnderstudyError:
    return UnderstudyError(
        f"{path}: was changed since it was stored, so the student is not registered; understudy store verify "
        f"{digest[:12]} says what is damaged, and running again makes it anew"
    )
