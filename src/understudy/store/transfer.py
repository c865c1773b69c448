"""Objects to and from a bucket: for a second cluster, or where no volume is ReadWriteMany.

A file that is there with its size is not sent again, so what was broken off goes on; the manifest goes last, so an
object that has one is complete there too. What comes back is read and hashed before it becomes an object here.
"""

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec

from understudy.errors import InputError, UnderstudyError, disk_errors
from understudy.store.files import hash_file, sha256
from understudy.store.objects import MANIFEST, Manifest
from understudy.store.store import Store

Tell = Callable[[str], None]


def push(store: Store, digest: str, url: str, tell: Tell) -> int:
    """Copy an object into a bucket.

    Args:
        store: where it lies.
        digest: the object.
        url: s3://BUCKET/PREFIX, or anything else that fsspec knows.
        tell: called with each file that is sent.

    Returns:
        Bytes that were sent.

    Raises:
        UnderstudyError: the object is damaged, or the bucket cannot be written.
    """
    damage = store.objects.damage(digest, thorough=True)
    if damage:
        raise UnderstudyError(f"{damage[0]}; a damaged object is not sent: run its recipe again to make it anew")
    manifest = store.objects.manifest(digest)
    assert manifest is not None
    sent, source = 0, store.objects.path(digest)
    with _Bucket(url) as bucket:
        for name, size, _ in manifest.files:
            if bucket.size(digest, name) != size:
                tell(name)
                bucket.put(source / name, digest, name)
                sent += size
        if sent or not bucket.exists(digest, MANIFEST):
            bucket.put(source / MANIFEST, digest, MANIFEST)
    return sent


def pull(store: Store, digest: str, url: str, tell: Tell) -> int:
    """Copy an object out of a bucket; arguments and errors as of push().

    Returns:
        Bytes that were fetched.

    Raises:
        InputError: the bucket has no such object.
        UnderstudyError: what it has is damaged, or it cannot be read.
    """
    if not store.objects.damage(digest):
        return 0
    aside = store.folder / "incoming" / digest
    fetched = 0
    with _Bucket(url) as bucket, disk_errors(aside):
        manifest = bucket.manifest(digest)
        for name, size, expected in manifest.files:
            target = aside / name
            if target.exists() and hash_file(target) == expected:
                continue
            tell(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
            bucket.get(digest, name, part)
            if hash_file(part) != expected:
                part.unlink()
                raise UnderstudyError(f"{url}: {name} of {digest} is damaged there; remove it there, and push it again")
            part.rename(target)
            fetched += size
        for left in aside.rglob(".*"):
            left.unlink()
    found = store.objects.publish(aside, manifest.kind, manifest.inputs, manifest.facts)
    assert found == digest
    return fetched


class _Bucket:
    """Objects below an address; its errors in words."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise InputError(f"{url}: {error}") from error

    def __enter__(self) -> "_Bucket":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, BotoCoreError | ClientError | PermissionError):
            words = " ".join(str(error).split())
            raise UnderstudyError(
                f"{self._url}: {words}; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for S3 other than AWS, "
                "AWS_ENDPOINT_URL say how to get in"
            ) from error

    def _path(self, digest: str, name: str) -> str:
        return f"{self._root}/objects/{digest[:2]}/{digest}/{name}"

    def exists(self, digest: str, name: str) -> bool:
        return bool(self._files.exists(self._path(digest, name)))

    def size(self, digest: str, name: str) -> int | None:
        path = self._path(digest, name)
        return int(self._files.size(path)) if self._files.exists(path) else None

    def put(self, source: Path, digest: str, name: str) -> None:
        path = self._path(digest, name)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.put_file(str(source), path)

    def get(self, digest: str, name: str, target: Path) -> None:
        self._files.get_file(self._path(digest, name), str(target))

    def manifest(self, digest: str) -> Manifest:
        if not self.exists(digest, MANIFEST):
            raise InputError(f"{self._url}: there is no whole object {digest}")
        encoded = self._files.cat_file(self._path(digest, MANIFEST))
        if sha256(encoded) != digest:
            raise UnderstudyError(f"{self._url}: the manifest of {digest} is damaged there")
        return Manifest.decode(json.loads(encoded))
