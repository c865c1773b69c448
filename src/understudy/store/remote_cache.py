"""The remote cache: a bucket with a copy of the step cache and its objects, for stores that come and go.

A run looks there before each step, and sends the result there: a cluster without a shared volume, a second one, and a
laptop repeat no step. A step's entry is sent last, so a step in the remote cache is complete.
"""

import json
import os
from collections.abc import Callable

from understudy.errors import InputError
from understudy.store import transfer
from understudy.store.bucket import Bucket
from understudy.store.files import canonical
from understudy.store.step_cache import FOLDER, CachedStep
from understudy.store.store import Store

ADDRESS = "UNDERSTUDY_REMOTE_CACHE"
"""s3://BUCKET/PREFIX; not set without a remote cache."""
OLD_ADDRESS = "UNDERSTUDY_RECORD"
"""Its name in version 0.1."""


class RemoteCache:
    """A bucket of finished steps.

    Args:
        url: s3://BUCKET/PREFIX, or any other URL that fsspec supports.
        tell: called with each transfer.
    """

    def __init__(self, url: str, report: Callable[[str], None]) -> None:
        self._url = url
        self._report = report

    def fetch(self, store: Store, key: str) -> bool:
        """Copy a finished step into a store, unless the bucket has none of that key, or only a part of it.

        Returns:
            Whether it is in the store now.

        Raises:
            UnderstudyError: a file of it is damaged, or the bucket cannot be read.
        """
        bucket = Bucket(self._url)
        cached = _cached_step(bucket, key)
        if cached is None or not transfer.is_complete(bucket, cached.digest):
            return False
        # The object first: a cached step without its object would be looked for in vain at each run.
        transfer.pull(store, cached.digest, self._url, lambda name: self._report(f"fetching {name} from {self._url}"))
        store.step_cache.put(cached)
        return True

    def send(self, store: Store, key: str) -> None:
        """Send a finished step, unless the bucket has it already, or a later result of the same step.

        Raises:
            UnderstudyError: the bucket cannot be written; the step is finished, and sent by the next run.
        """
        cached = store.step_cache.get(key)
        if cached is None:
            return  # gc forgot it meanwhile
        bucket = Bucket(self._url)
        # Two clusters may have run the same step with different bits. The later result counts, so that one that was
        # forgotten here and computed again does not lose to an older one there.
        remote = _cached_step(bucket, key)
        if remote and remote.at >= cached.at and transfer.is_complete(bucket, remote.digest):
            return
        transfer.push(store, cached.digest, self._url, lambda name: self._report(f"sending {name} to {self._url}"))
        bucket.write(entry(key), canonical(cached.encode()))


def address() -> str | None:
    """The remote cache that the environment names; None where there is none.

    Raises:
        InputError: the environment has the variable's old name, which would be ignored.
    """
    if os.environ.get(OLD_ADDRESS):
        raise InputError(f"environment variable {OLD_ADDRESS}: it was renamed to {ADDRESS}; rename it where it is set")
    return os.environ.get(ADDRESS)


def from_environment(report: Callable[[str], None]) -> RemoteCache | None:
    """The remote cache that the environment names; None where there is none.

    Raises:
        InputError: as of address().
    """
    url = address()
    return RemoteCache(url, report) if url else None


def entry(key: str) -> str:
    """The path of a step's entry in the bucket."""
    return f"{FOLDER}/{key}.json"


def _cached_step(bucket: Bucket, key: str) -> CachedStep | None:
    """The bucket's step of a key; None if it is missing or damaged: the step is then done again."""
    encoded = bucket.read(entry(key))
    try:
        cached = CachedStep.decode(json.loads(encoded)) if encoded else None
    except (RecursionError, ValueError):
        return None
    return cached if cached and cached.key == key else None
