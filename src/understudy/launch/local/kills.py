"""Why a process was killed, as far as the kernel's count of those that it ended for want of memory tells."""

from pathlib import Path

VMSTAT = Path("/proc/vmstat")
LESS = "a smaller batch_size, larger gradient_accumulation_steps or strategy fsdp needs less"


def ended_for_memory() -> int | None:
    """How many processes the kernel has ended because memory ran out; None where it does not say."""
    try:
        counts = dict(line.split() for line in VMSTAT.read_text().splitlines())
    except OSError:
        return None
    return int(counts["oom_kill"]) if "oom_kill" in counts else None


def why_killed(before: int | None) -> str:
    """What is to be said of a process that ended with SIGKILL.

    Args:
        before: how many had been ended for memory when it began.
    """
    now = ended_for_memory()
    if before is None or now is None:
        return f"That is how the kernel ends a process when memory runs out: {LESS}."
    if now > before:
        return f"The kernel ended it, as memory ran out: {LESS}."
    return (
        "The kernel ended no process for want of memory meanwhile: somebody did, or a daemon that watches memory, "
        f"for which {LESS}."
    )
