"""Whether the registry still holds what was registered: the files of each version, by the digest in its tag."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from understudy.errors import UnderstudyError, disk_errors
from understudy.registry.client import mlflow_at, server_at
from understudy.registry.names import CHALLENGER, CHAMPION, DIGEST
from understudy.registry.server import database
from understudy.registry.tracking import Version
from understudy.registry.version_files import whole


def checked_versions(uri: str) -> Iterator[tuple[Version, bool]]:
    """Each version that is checked, and whether its model's files are those of its digest.

    All versions of a registry on this machine; of a server, from which they are downloaded, those that have an alias.

    Raises:
        UnderstudyError: the registry cannot be asked.
    """
    path = database(uri)
    if path and not path.exists():
        return
    server = server_at(uri)
    versions = [version for version in server.versions() if DIGEST in version.tags]
    aliases = {name: server.aliases(name) for name in {version.name for version in versions}}
    for version in versions:
        own = aliases[version.name]
        if path or version.number in {own.get(CHALLENGER), own.get(CHAMPION)}:
            yield version, _is_whole(uri, version)


def _is_whole(uri: str, version: Version) -> bool:
    digest = version.tags[DIGEST]
    with tempfile.TemporaryDirectory() as folder, disk_errors(Path(folder)):
        try:
            source = f"models:/{version.name}/{version.number}/artifacts/{digest}"
            return whole(mlflow_at(uri).download(source, Path(folder)), digest) is not None
        except UnderstudyError:  # files that are gone
            return False
