"""One digest of all files of a version, for its approval and its promotion.

The store's digest covers the model only. A version also has a serving script, requirements and code, and until the
alias champion points to it, the account that made it can write to all of them.
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
MARK = "registered_model_meta"  # a file that MLflow's client adds to its downloads


def intact_manifest(folder: Path, digest: str) -> Manifest | None:
    """The manifest of a stored model in a folder; None unless its files are exactly those of the digest."""
    try:
        encoded = (folder / MANIFEST).read_bytes()
        if sha256(encoded) != digest:  # before parsing: other content may be anything
            return None
        manifest = Manifest.decode(json.loads(encoded))
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return None
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if names != {MANIFEST, *(name for name, _, _ in manifest.files)}:
        return None
    return manifest if all(hash_file(folder / name) == file_digest for name, _, file_digest in manifest.files) else None


def files_digest(uri: str, name: str, version: str, digest: str) -> str:
    """Download all files of a version and compute their digest.

    Args:
        uri: the registry.
        name: the model's name.
        version: the version's number.
        digest: the store's digest of the model, which must be among the files.

    Raises:
        UnderstudyError: they cannot be downloaded, or the model is not among them.
    """
    with tempfile.TemporaryDirectory() as folder, disk_errors(Path(folder)):
        fetched = mlflow_at(uri).download(f"models:/{name}/{version}", Path(folder))
        if intact_manifest(fetched / "artifacts" / digest, digest) is None:
            raise UnderstudyError(
                f"{public_uri(uri)}: the files of {name}, version {version}, are not those of its digest {digest}; "
                "they were changed, and it cannot be promoted"
            )
        paths = sorted(path for path in fetched.rglob("*") if path.is_file() and path != fetched / MARK)
        return sha256(canonical([[path.relative_to(fetched).as_posix(), hash_file(path)] for path in paths]))
