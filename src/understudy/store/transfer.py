"""Transfer of objects to and from a bucket: for a second cluster, or for a store on a temporary volume.

A file that exists there with its size is not sent again, so an interrupted transfer resumes. The manifest is sent
last, so an object with a manifest is complete there. Fetched files are hashed before they become a local object.
"""

import json
from collections.abc import Callable
from pathlib import Path

from understudy.errors import Fenced, InputError, UnderstudyError, disk_errors
from understudy.store.bucket import Bucket
from understudy.store.files import hash_file, sha256
from understudy.store.objects import MANIFEST, Manifest
from understudy.store.store import Store
from understudy.store.vault import is_inside

Tell = Callable[[str], None]


def push(store: Store, digest: str, url: str, report: Tell) -> int:
    """Copy an object into a bucket.

    Args:
        store: the store with the object.
        digest: the object.
        url: s3://BUCKET/PREFIX, or any other URL that fsspec supports.
        report: called with each file that is sent.

    Returns:
        The bytes sent.

    Raises:
        UnderstudyError: the object is damaged, or the bucket cannot be written.
    """
    damage = store.objects.damage(digest, thorough=True)
    if damage:
        raise UnderstudyError(f"{damage[0]}; a damaged object is not sent: run its recipe again to make it again")
    manifest = store.objects.manifest(digest)
    assert manifest is not None
    bytes_sent, source, bucket = 0, store.objects.path(digest), Bucket(url)
    for name, size, _ in manifest.files:
        if bucket.size(_path(digest, name)) != size:
            report(name)
            bucket.put(source / name, _path(digest, name))
            bytes_sent += size
    if bytes_sent or _manifest(bucket, digest) is None:
        bucket.put(source / MANIFEST, _path(digest, MANIFEST))
    return bytes_sent


def pull(store: Store, digest: str, url: str, report: Tell) -> int:
    """Copy an object out of a bucket; arguments and errors as of push().

    Returns:
        The bytes fetched.

    Raises:
        InputError: the bucket has no such object.
        UnderstudyError: the copy there is damaged, or the bucket cannot be read.
    """
    if not store.objects.damage(digest):
        return 0
    bucket = Bucket(url)
    manifest = _manifest(bucket, digest)
    if manifest is None:
        raise InputError(f"{url}: there is no complete object {digest}")
    # Two runs that miss the same object fetch it once: the lease is on the object's digest as if it were a step's key.
    lease = store.wait_for(digest, lambda: not store.objects.damage(digest))
    if lease is None:
        return 0
    try:
        fetched = _fetch(store, digest, manifest, bucket, lease.folder / "object", report)
    except BaseException as error:
        lease.release_if_held()
        if isinstance(error, FileNotFoundError):
            raise Fenced(f"{digest}: another process has taken over fetching it; run again") from error
        raise
    lease.finish()
    return fetched


def _fetch(store: Store, digest: str, manifest: Manifest, bucket: Bucket, target_folder: Path, report: Tell) -> int:
    """Fetch an object, except for the files that an earlier process fetched; returns the bytes fetched.

    Raises:
        FileNotFoundError: another process has taken over.
    """
    fetched, part = 0, target_folder.with_name("part")
    with disk_errors(target_folder):
        target_folder.mkdir(exist_ok=True)
        for name, size, expected in manifest.files:
            target = target_folder / name
            if target.exists() and hash_file(target) == expected:
                continue
            report(name)
            for folder in reversed(Path(name).parents):  # never the lease's folder, which may be gone
                (target_folder / folder).mkdir(exist_ok=True)
            part.unlink(missing_ok=True)  # left by a killed process, which may still be alive
            try:
                if not bucket.get(_path(digest, name), part) or hash_file(part) != expected:
                    raise _damaged(bucket, digest, name)
                part.rename(target)
            finally:
                part.unlink(missing_ok=True)
            fetched += size
    if store.objects.publish(target_folder, manifest.kind, manifest.inputs, manifest.facts) != digest:
        raise _damaged(bucket, digest, MANIFEST)
    return fetched


def is_complete(bucket: Bucket, digest: str) -> bool:
    """Whether a bucket has an object with all of its files."""
    manifest = _manifest(bucket, digest)
    return manifest is not None and all(bucket.size(_path(digest, name)) == size for name, size, _ in manifest.files)


def _path(digest: str, name: str) -> str:
    return f"objects/{digest[:2]}/{digest}/{name}"


def _manifest(bucket: Bucket, digest: str) -> Manifest | None:
    """A bucket's manifest of an object; None if it is missing or does not match the digest.

    Raises:
        UnderstudyError: it was not written by understudy.
    """
    # The manifest's hash is the object's name, so it cannot be replaced. But any account with write access to the
    # bucket can add objects, and fetching one by its digest must not write outside of its folder.
    encoded = bucket.read(_path(digest, MANIFEST))
    if not encoded or sha256(encoded) != digest:
        return None
    try:
        manifest = Manifest.decode(json.loads(encoded))
        outside = [name for name, _, _ in manifest.files if not _is_inside(name)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(bucket, digest, MANIFEST) from error
    if outside:
        raise UnderstudyError(
            f"{bucket.url}: {digest} has a file outside its folder, {outside[0]!r}: understudy writes no "
            "such object. Nothing was fetched; find out who can write to this bucket"
        )
    return manifest


def _is_inside(name: str) -> bool:
    return is_inside(name) and name != MANIFEST


def _damaged(bucket: Bucket, digest: str, name: str) -> UnderstudyError:
    fix = f"remove {_path(digest, '')} there: the next run, or understudy store push of an intact one, sends it again"
    return UnderstudyError(f"{bucket.url}: {name} of {digest} is damaged or missing there; {fix}")
