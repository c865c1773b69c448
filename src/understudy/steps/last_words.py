"""A task's termination message, in its pod's status.

KFP's pages and its API report only this message of a failed task, or else "Error (exit code 1)".
"""

from contextlib import suppress
from pathlib import Path

PATH = Path("/dev/termination-log")
"""A container's text here becomes part of its pod's status (Kubernetes' default terminationMessagePath)."""
LIMIT = 4096  # bytes; of a longer text the kubelet keeps only the end


def leave(text: str) -> None:
    """Write the termination message; do nothing if this process is not in a container."""
    if PATH.is_file():
        with suppress(OSError):  # the log has the text too
            PATH.write_bytes(text.encode()[:LIMIT])
