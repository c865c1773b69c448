"""All files of a version by one digest, for whoever approves it, and whoever makes it the champion.

The store's digest names the model. Beside it a version has the script that serves it, its requirements and code, and
until the alias champion points to it, the account that made it can write to all of them.
"""

import json
import tempfile
from pathlib import Path

from understudy.errors import UnderstudyError, disk_errors
from understudy.registry.client import mlflow_at
from understudy.registry.server import public_uri
from understudy.store import Manifest
from understudy.store.files import canonical, hash_file, sha256

MANIFEST = "manifest.json"
MARK = "registered_model_meta"  # a file that MLflow's client adds to what it fetches


def whole(folder: Path, digest: str) -> Manifest | None:
    """The manifest of a model of the store's in a folder; None when its files are not all, and only, the digest's."""
    try:
        encoded = (folder / MANIFEST).read_bytes()
        if sha256(encoded) != digest:  # before it is read: what it is not, may be anything
            return None
        manifest = Manifest.decode(json.loads(encoded))
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return None
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if there != {MANIFEST, *(name for name, _, _ in manifest.files)}:
        return None
    return manifest if all(hash_file(folder / name) == own for name, _, own in manifest.files) else None


def files_digest(uri: str, name: str, version: str, digest: str) -> str:
    """The digest of a version's files, all of them fetched and read now.

    Args:
        uri: the registry.
        name: the model's.
        version: the version's number.
        digest: the store's, of the model that has to be among the files.

    Raises:
        UnderstudyError: they cannot be had, or that model is not among them.
    """
    with tempfile.TemporaryDirectory() as folder, disk_errors(Path(folder)):
        fetched = mlflow_at(uri).download(f"models:/{name}/{version}", Path(folder))
        if whole(fetched / "artifacts" / digest, digest) is None:
            raise UnderstudyError(
                f"{public_uri(uri)}: the files of {name}, version {version}, are not those of its digest {digest}; "
                "they were changed, and it cannot be promoted"
            )
        paths = sorted(path for path in fetched.rglob("*") if path.is_file() and path != fetched / MARK)
        return sha256(canonical([[path.relative_to(fetched).as_posix(), hash_file(path)] for path in paths]))
