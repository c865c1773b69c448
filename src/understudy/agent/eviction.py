"""How a node agent asks its ranks to end, and ranks record for the agent which attempt they are part of.

Both are files of this node: the volume may be slow, full or away when a pod has seconds left.
"""

import os
from pathlib import Path

EVICTION = "UNDERSTUDY_EVICTION"
"""Names a file. When it exists, this node's ranks take a checkpoint and leave; it holds the reason."""
ABANDONED = "abandoned"
"""The reason when no launcher watches the job any more."""
ATTEMPT = "attempt"
"""Beside it: the attempt that the node's ranks are part of."""


def is_evicted() -> bool:
    """Whether this node's ranks have to end."""
    path = os.environ.get(EVICTION)
    return path is not None and os.path.exists(path)


def record_attempt(attempt: str) -> None:
    """Record for this node's agent which attempt its ranks are part of."""
    if path := os.environ.get(EVICTION):
        Path(path).with_name(ATTEMPT).write_text(attempt)
