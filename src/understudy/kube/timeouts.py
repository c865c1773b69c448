"""How long a launcher waits for recovery, and how it retries while the API server or the volume does not answer."""

import errno
from collections.abc import Callable
from typing import TypeVar

from understudy.kube.api import Refused, Unavailable

RECOVERY = 60.0  # seconds in which a fault may recover: a registry, a webhook, an image that is pushed late
UNMOUNTED = 600.0  # the same for volumes: a disk is detached from a dead node after six minutes
SETTLE = 10.0  # seconds until the outcomes of a finished job are visible on the volume
TERMINATION = 10.0  # seconds beyond its grace period that a pod may take: its node hears of it later
RESIZE = 10.0  # seconds from one number of nodes to the next smaller one
STARTS = 10  # starts of a job without progress
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # a volume that does not recover without help

Answer = TypeVar("Answer")


class Retries:
    """Tolerance for requests that fail for a while.

    Args:
        clock: seconds, from any beginning.
        say: called with each error.
    """

    def __init__(self, clock: Callable[[], float], report: Callable[[str], None]) -> None:
        self._clock, self._report = clock, report
        self._failing_since: dict[str, float] = {}

    def call(self, request: str, attempt: Callable[[], Answer]) -> Answer | None:
        """The result; None if it fails: without limit while the API server is away, and otherwise for a minute.

        The job does not need the API server, and its files show its progress.

        Args:
            request: a name for the request; its minute begins with the first failure after a success.
            attempt: makes the request.
        """
        try:
            answer = attempt()
            self._failing_since.pop(request, None)
            return answer
        except Unavailable as error:
            self._report(f"{error}; the job keeps running, and the launcher retries")
        except (Refused, OSError) as error:  # a server that has just started; a volume that is away for a moment
            if isinstance(error, OSError) and error.errno in FULL:
                raise  # ranks cannot checkpoint there either: every further minute of theirs would be lost
            if self._clock() - self._failing_since.setdefault(request, self._clock()) > RECOVERY:
                raise
            self._report(str(error))
        return None
