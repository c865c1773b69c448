"""What a task says last, left where its pod's status has it.

KFP's pages and its API know of a failed task only what stands there: otherwise it is "Error (exit code 1)".
"""

from contextlib import suppress
from pathlib import Path

PATH = Path("/dev/termination-log")
"""What a container writes here becomes part of its pod's status (Kubernetes' default terminationMessagePath)."""
LIMIT = 4096  # bytes; of more, the kubelet keeps the end


def leave(text: str) -> None:
    """Leave a text; nothing where this process is not a container's."""
    if PATH.is_file():
        with suppress(OSError):  # the log has it
            PATH.write_bytes(text.encode()[:LIMIT])
