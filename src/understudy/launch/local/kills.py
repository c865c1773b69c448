"""Reasons for a SIGKILL, as far as the kernel's count of out-of-memory (OOM) kills shows them."""

import re
from pathlib import Path

VMSTAT = Path("/proc/vmstat")
LESS = "a smaller batch_size, larger gradient_accumulation_steps or strategy fsdp needs less"


def oom_kill_count() -> int | None:
    """Number of OOM kills since boot; None if the kernel does not report it."""
    try:
        counted = re.search(r"^oom_kill (\d+)$", VMSTAT.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(counted[1]) if counted else None


def kill_explanation(initial_count: int | None) -> str:
    """The explanation for a process that ended with SIGKILL.

    Args:
        initial_count: number of OOM kills when it began.
    """
    current_count = oom_kill_count()
    if initial_count is None or current_count is None:
        return f"The kernel ends processes in this way when memory runs out: {LESS}."
    if current_count > initial_count:
        return (
            f"The kernel's OOM killer ended {current_count - initial_count} on this machine meanwhile, probably this "
            f"one: {LESS}."
        )
    return (
        "The kernel's OOM killer ended no process meanwhile: a user did, or a daemon that watches memory, for which "
        f"{LESS}."
    )
