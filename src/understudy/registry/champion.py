"""The champion, and the digests of all objects that the registry still needs."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from understudy.errors import UnderstudyError, disk_errors
from understudy.registry.client import mlflow_at, server_at
from understudy.registry.foreign import Foreign
from understudy.registry.names import CHAMPION, DIGEST, TEACHER
from understudy.registry.server import address, database, public_uri
from understudy.registry.signature import PUBLIC, SIGNATURE, checking_key, is_valid
from understudy.registry.version_files import MANIFEST, intact_manifest
from understudy.store import Manifest
from understudy.store.files import HEXADECIMAL


@dataclass(frozen=True)
class Champion:
    """The version with the alias champion: the store's digest of its model, and the address of its files."""

    name: str
    version: str
    digest: str
    source: str


def champion(uri: str, name: str) -> Champion | Foreign | None:
    """A registered model's champion; None if it has none, Foreign if it was registered by other means.

    Raises:
        UnderstudyError: the registry cannot be queried, or the champion's digest or signature is missing or invalid.
    """
    server = server_at(uri)
    version = server.aliases(name).get(CHAMPION)
    if version is None:
        return None
    tags = server.version_tags(name, version) or {}
    digest, key = tags.get(DIGEST), checking_key()
    if digest is None and key is None:
        return Foreign(name, version)
    if digest is None or not HEXADECIMAL.fullmatch(digest):  # it is used as a path
        raise UnderstudyError(
            f"{public_uri(uri)}: the champion of {name}, version {version}, has no digest as its tag {DIGEST}: "
            "understudy did not make it and cannot measure it on this test split. Give the alias champion to a version "
            "that understudy registered, remove the alias, or set register.model to another name."
        )
    if key and not is_valid(key, tags.get(SIGNATURE, ""), name, version, digest):
        raise UnderstudyError(
            f"{public_uri(uri)}: the champion of {name}, version {version}, has no valid signature ({SIGNATURE}): what "
            f"it was promoted with is not the key of {PUBLIC}, or it was changed since. If its files are the "
            "right ones, as their digest says, let a reviewer give it the alias again."
        )
    # MLflow names an artifact by the last part of its path: for an object of the store, its digest.
    return Champion(name, version, digest, f"models:/{name}/{version}/artifacts/{digest}")


def fetch(uri: str, champion: Champion, folder: Path) -> Manifest:
    """Download a champion's model to an empty folder and verify every byte, so that it can be published again.

    Returns:
        The manifest: `objects.publish(folder, manifest.kind, manifest.inputs, manifest.facts)` gives its digest.

    Raises:
        UnderstudyError: it cannot be downloaded, or does not match its digest tag.
    """
    with disk_errors(folder):
        fetched = mlflow_at(uri).download(champion.source, folder)
    manifest = intact_manifest(fetched, champion.digest)
    if manifest is None:
        raise UnderstudyError(
            f"{public_uri(uri)}: the files of {champion.source} are not those of its tag {DIGEST}; "
            "they were changed. Give the alias champion to another version."
        )
    _lift(fetched, folder)
    return manifest


def _lift(fetched: Path, folder: Path) -> None:
    """Move the model's files up into the target folder."""
    if fetched.resolve() == folder.resolve():
        (folder / MANIFEST).unlink()
        return
    (fetched / MANIFEST).unlink()
    for path in list(fetched.iterdir()):
        path.rename(folder / path.name)
    shutil.rmtree(folder / fetched.relative_to(folder).parts[0])


def needed_digests(uri: str, home: Path, servers: Mapping[str, Path]) -> set[str]:
    """The digests of all models and their teachers in this registry, and in the others that received models of a store.

    Args:
        uri: the registry in use.
        home: the folder of the store and of the local registry.
        servers: the identities of the registries that got models of the store, each with the file that records it.

    Raises:
        UnderstudyError: a registry cannot be queried, or shows none of the models that it got from this store.
    """
    digests = registered_digests(uri)
    for server, file in servers.items():
        try:
            digests |= _digests_at(_with_credentials_only_for(uri, address(server, home)))
        except UnderstudyError as error:
            hint = (
                "Credentials are sent to the registry in use alone; give another one's address as --tracking-uri. If "
                f"this registry is gone for good, or needs nothing of this store, remove {file}"
            )
            raise UnderstudyError(f"{error}\n{hint}") from error
    return digests


def _with_credentials_only_for(used: str, uri: str) -> str:
    """A registry's address; anonymous for any server but the one in use.

    The other addresses come from files of the store, or of its backup: write access there must not yield credentials.
    """
    parts, used_parts = urlsplit(uri), urlsplit(used)
    if database(uri) or (parts.scheme, parts.hostname, parts.port) == (
        used_parts.scheme,
        used_parts.hostname,
        used_parts.port,
    ):
        return uri
    return urlunsplit(parts._replace(netloc=f"@{parts.netloc.rpartition('@')[2]}"))


def _digests_at(uri: str) -> set[str]:
    """The digests at a registry that got models of the store. An account without read access sees none: an error."""
    path = database(uri)
    if path and not path.exists():
        raise UnderstudyError(f"{path}: models were registered here, and the file is gone")
    digests = registered_digests(uri)
    if not digests and not path:
        raise UnderstudyError(
            f"{public_uri(uri)}: models of this store were registered here, and none is shown; sign in as an account "
            "that may read them"
        )
    return digests


def registered_digests(uri: str) -> set[str]:
    """The digests of all models in the registry and of their teachers, for the store's gc.

    Raises:
        UnderstudyError: the registry cannot be queried.
    """
    path = database(uri)
    if path and not path.exists():
        return set()
    tags = [version.tags for version in server_at(uri).versions()]
    digests = {version[tag] for version in tags for tag in {DIGEST, TEACHER} & version.keys()}
    return {digest for digest in digests if HEXADECIMAL.fullmatch(digest)}  # other values name no object
