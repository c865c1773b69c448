"""The store of record: a bucket that holds every finished step, for stores that come and go.

A finished step is its object and the memo that names it under the step's key. Whoever is about to do a step looks there
first, and whoever has done one sends it there: a cluster without a volume for all of its nodes, a second cluster, and a
laptop do nothing twice. The memo goes last, so a step that the record remembers is whole.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict

from understudy.store import transfer
from understudy.store.bucket import Bucket
from understudy.store.files import canonical
from understudy.store.store import Memo, Store

ADDRESS = "UNDERSTUDY_RECORD"
"""s3://BUCKET/PREFIX; not set where the store stands for itself."""


class Record:
    """A bucket of finished steps.

    Args:
        url: s3://BUCKET/PREFIX, or anything else that fsspec knows.
        tell: called with what is sent or fetched.
    """

    def __init__(self, url: str, tell: Callable[[str], None]) -> None:
        self._url = url
        self._tell = tell

    def fetch(self, store: Store, key: str) -> bool:
        """Bring a finished step into a store, unless the record has none of that key, or not all of it.

        Returns:
            Whether it is in the store now.

        Raises:
            UnderstudyError: a file of it is damaged, or the bucket cannot be read.
        """
        bucket = Bucket(self._url)
        memo = _memo(bucket, key)
        if memo is None or not transfer.holds(bucket, memo.digest):
            return False
        transfer.pull(store, memo.digest, self._url, lambda name: self._tell(f"fetching {name} from {self._url}"))
        store.remember(memo)
        return True

    def keep(self, store: Store, key: str) -> None:
        """Send a finished step, unless the record has it already, or a later result of the same step.

        Raises:
            UnderstudyError: the bucket cannot be written; the step is finished all the same, and sent by the next run.
        """
        memo = store.memo(key)
        if memo is None:
            return  # somebody told gc to forget it meanwhile
        bucket = Bucket(self._url)
        known = _memo(bucket, key)
        if known and known.at >= memo.at and transfer.holds(bucket, known.digest):
            return
        transfer.push(store, memo.digest, self._url, lambda name: self._tell(f"sending {name} to {self._url}"))
        bucket.write(_path(key), canonical(asdict(memo)))


def of_environment(tell: Callable[[str], None]) -> Record | None:
    """The store of record that the environment names; None where there is none."""
    url = os.environ.get(ADDRESS)
    return Record(url, tell) if url else None


def _path(key: str) -> str:
    return f"memo/{key}.json"


def _memo(bucket: Bucket, key: str) -> Memo | None:
    """What the record remembers under a key; None when that is nothing, or damaged: the step is then done again."""
    encoded = bucket.read(_path(key))
    try:
        memo = Memo(**json.loads(encoded)) if encoded else None
    except (ValueError, TypeError):
        return None
    return memo if memo and memo.key == key else None
