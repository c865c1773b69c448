"""Why a process was killed, as far as the kernel's count of those that it ended for want of memory tells."""

import re
from pathlib import Path

VMSTAT = Path("/proc/vmstat")
LESS = "a smaller batch_size, larger gradient_accumulation_steps or strategy fsdp needs less"


def ended_for_memory() -> int | None:
    """How many processes the kernel has ended because memory ran out; None where it does not say."""
    try:
        counted = re.search(r"^oom_kill (\d+)$", VMSTAT.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(counted[1]) if counted else None


def why_killed(before: int | None) -> str:
    """What is to be said of a process that ended with SIGKILL.

    Args:
        before: how many had been ended for memory when it began.
    """
    now = ended_for_memory()
    if before is None or now is None:
        return f"That is how the kernel ends a process when memory runs out: {LESS}."
    if now > before:
        return (
            f"The kernel ended {now - before} for want of memory on this machine meanwhile, probably this one: {LESS}."
        )
    return (
        "The kernel ended no process for want of memory meanwhile: somebody did, or a daemon that watches memory, "
        f"for which {LESS}."
    )
