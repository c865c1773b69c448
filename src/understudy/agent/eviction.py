"""Files between a node agent and its ranks: the request to end, and the attempt that the ranks are part of.

They are local to the node: the volume may be slow, full or unavailable when a pod has seconds left.
"""

import os
from pathlib import Path

EVICTION = "UNDERSTUDY_EVICTION"
"""Variable with a file's path. If the file exists, this node's ranks checkpoint and exit; it contains the reason."""
ABANDONED = "abandoned"
"""The reason when no launcher supervises the job any more."""
ATTEMPT = "attempt"
"""File beside it: the attempt that the node's ranks are part of."""


def is_evicted() -> bool:
    """Whether this node's ranks have to end."""
    path = os.environ.get(EVICTION)
    return path is not None and os.path.exists(path)


def record_attempt(attempt: str) -> None:
    """Record for this node's agent which attempt its ranks are part of."""
    if path := os.environ.get(EVICTION):
        Path(path).with_name(ATTEMPT).write_text(attempt)
