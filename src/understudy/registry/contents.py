"""Integrity check of the registry: the files of each version against the digest in its tag."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from understudy.errors import UnderstudyError, disk_errors
from understudy.registry.client import mlflow_at, server_at
from understudy.registry.names import CHALLENGER, CHAMPION, DIGEST
from understudy.registry.server import database
from understudy.registry.tracking import Version
from understudy.registry.version_files import intact_manifest


def checked_versions(uri: str) -> Iterator[tuple[Version, bool]]:
    """Each checked version, and whether its model's files match its digest.

    A local registry is checked whole; on a server, which requires downloads, only challengers and champions are.

    Raises:
        UnderstudyError: the registry cannot be queried.
    """
    path = database(uri)
    if path and not path.exists():
        return
    server = server_at(uri)
    versions = [version for version in server.versions() if DIGEST in version.tags]
    aliases = {name: server.aliases(name) for name in {version.name for version in versions}}
    for version in versions:
        model_aliases = aliases[version.name]
        if path or version.number in {model_aliases.get(CHALLENGER), model_aliases.get(CHAMPION)}:
            yield version, _is_whole(uri, version)


def _is_whole(uri: str, version: Version) -> bool:
    digest = version.tags[DIGEST]
    with tempfile.TemporaryDirectory() as folder, disk_errors(Path(folder)):
        try:
            source = f"models:/{version.name}/{version.number}/artifacts/{digest}"
            return intact_manifest(mlflow_at(uri).download(source, Path(folder)), digest) is not None
        except UnderstudyError:  # missing files
            return False
