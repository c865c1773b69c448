"""For how long a job stands where it does, and pods do not end: by this process's clock, as others' may differ."""

import time
from collections.abc import Sequence

from understudy.launch.kubernetes.api import Object
from understudy.launch.kubernetes.diagnosis import is_never_admitted
from understudy.launch.kubernetes.status import Sight

LEAVING = 10.0  # seconds beyond its grace period that a pod may take: its node hears of it later


class Waiting:
    """For how long a job has stood where it does."""

    def __init__(self) -> None:
        self._where, self._since = ("", False, False), time.monotonic()

    @property
    def seconds(self) -> float:
        """Since it came there."""
        return time.monotonic() - self._since

    def look(self, sight: Sight) -> None:
        """Take in where it stands now; what is only no longer hopeless has waited as long."""
        where = sight.stage, bool(sight.broken), is_never_admitted(sight.detail)
        if where not in (self._where, (*self._where[:2], False)):
            self._since = time.monotonic()
        self._where = where

    def shorten(self, seconds: float) -> None:
        """Begin anew, as if it had stood there for so many seconds."""
        self._since = time.monotonic() - seconds


class Leaving:
    """Since when pods are deleted and still there."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def overdue(self, pods: Sequence[Object]) -> tuple[str, ...]:
        """The names of those that were seen as deleted for longer than their grace period: their node is dead."""
        metas = [pod["metadata"] for pod in pods if "deletionTimestamp" in pod["metadata"]]
        now = time.monotonic()
        self._since = {meta["uid"]: self._since.get(meta["uid"], now) for meta in metas}
        allowed = {meta["name"]: meta.get("deletionGracePeriodSeconds", 0) + LEAVING for meta in metas}
        return tuple(meta["name"] for meta in metas if now - self._since[meta["uid"]] > allowed[meta["name"]])
