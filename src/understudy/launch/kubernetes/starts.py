"""A job that is started again and again and gets no further: whatever the reason, it will not mend by itself."""

from understudy.launch.kubernetes.api import Object


class Starts:
    """How often a job's pods were all new since it last got further."""

    def __init__(self, nodes: int) -> None:
        self._nodes, self._pods, self._best, self._count = nodes, frozenset[str](), -1, 0

    def forgive(self) -> None:
        """They had to go for reasons that lie outside of the job."""
        self._count = 0

    def count(self, pods: list[Object], step: int) -> int:
        """Take in what is there now."""
        if step > self._best:
            self._best, self._count = step, 0
        now = frozenset(pod["metadata"]["uid"] for pod in pods)
        if len(now) >= self._nodes and not now & self._pods:
            self._count, self._pods = self._count + 1, now
        return self._count
