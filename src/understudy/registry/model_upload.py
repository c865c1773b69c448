"""Upload of a model's own files to the registry, directly from the store's object, verified by its manifest.

No file is copied or loaded whole: MLflow's client streams it. A file is hashed just before its upload, so that the
second read comes from the page cache. A file that is modified in between is refused.
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


def model_path(digest: str) -> str:
    """The folder of a model's own files in a version."""
    return f"artifacts/{digest}"


def send_model(client: "MlflowClient", logged_model: str, model: Path, digest: str) -> None:
    """Upload a model's files and its manifest, so that the store can restore the model from the registry.

    Args:
        client: MLflow's client.
        logged_model: the id of the MLflow logged model that receives them.
        model: the folder of the store's object.
        digest: the object's digest.

    Raises:
        UnderstudyError: a file does not match the object's digest, or changed during its upload.
    """
    for name, expected in _files(model, digest):
        path = model / name
        identity_before = identity(path)
        if hash_file(path) != expected:
            raise _changed(path, digest)
        client.log_model_artifact(logged_model, str(path), str(PurePosixPath(model_path(digest), name).parent))
        if identity(path) != identity_before:
            raise _changed(path, digest)


def _files(model: Path, digest: str) -> Iterator[tuple[str, str]]:
    """Each file of an object with its SHA-256, the manifest last."""
    encoded = (model / MANIFEST).read_bytes()
    if sha256(encoded) != digest:
        raise _changed(model / MANIFEST, digest)
    for name, _, expected in Manifest.decode(json.loads(encoded)).files:
        yield name, expected
    yield MANIFEST, digest


def _changed(path: Path, digest: str) -> UnderstudyError:
    return UnderstudyError(
        f"{path}: was changed since it was stored, so the student is not registered; understudy store verify "
        f"{digest[:12]} shows the damage, and another run makes it again"
    )
