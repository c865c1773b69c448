"""Reasons for a SIGKILL, as far as the kernel's count of out-of-memory (OOM) kills shows them."""

import re
from pathlib import Path

VMSTAT = Path("/proc/vmstat")
LESS = "a smaller batch_size, larger gradient_accumulation_steps or strategy fsdp needs less"


def ended_for_memory() -> int | None:
    """Number of OOM kills since boot; None if the kernel does not report it."""
    try:
        counted = re.search(r"^oom_kill (\d+)$", VMSTAT.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(counted[1]) if counted else None


def why_killed(before: int | None) -> str:
    """The explanation for a process that ended with SIGKILL.

    Args:
        before: number of OOM kills when it began.
    """
    now = ended_for_memory()
    if before is None or now is None:
        return f"That is how the kernel ends a process when memory runs out: {LESS}."
    if now > before:
        return f"The kernel's OOM killer ended {now - before} on this machine meanwhile, probably this one: {LESS}."
    return (
        "The kernel's OOM killer ended no process meanwhile: a user did, or a daemon that watches memory, for which "
        f"{LESS}."
    )
