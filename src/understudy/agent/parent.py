"""Processes that die with their parent: no rank outlives the process that started it, however that process ended."""

import ctypes
import os
import signal
import sys

_PARENT = "UNDERSTUDY_PARENT"
_PR_SET_PDEATHSIG = 1


def environment() -> dict[str, str]:
    """The environment for a child that has to die with this process."""
    return {**os.environ, _PARENT: str(os.getpid())}


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends (Linux), and end now if it already has.

    The parent must have started this process from its main thread: the kernel watches the thread, not the process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.environ.pop(_PARENT, None)
    if parent and os.getppid() != int(parent):
        os._exit(1)
    os.environ[_PARENT] = str(os.getpid())
