"""Memory that was freed: kept where there is plenty, given back where not."""

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource, sys, torch
from pathlib import Path
from understudy.train.memory import settle_freed_memory

if sys.argv[1] != "as it is":
    settle_freed_memory(int(sys.argv[1]), 1)
for turn in range(24):
    if turn == 12:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [torch.ones(2**size) for size in (20, 22, 24)]
    small = torch.ones(2**20)
    del held
pages = int(Path("/proc/self/statm").read_text().split()[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, pages * 4096)
"""
HELD = 4 * (2**20 + 2**22 + 2**24)
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")


def steps(share: str) -> tuple[int, int]:
    """Page faults of some steps, and the process's bytes after them."""
    output = subprocess.run([sys.executable, "-c", STEPS, share], check=True, capture_output=True, text=True).stdout
    faults, resident = output.split()
    return int(faults), int(resident)


@glibc
def test_with_plenty_of_memory_freed_memory_is_reused_without_page_faults() -> None:
    assert steps("1000")[0] < 0.02 * steps("as it is")[0]


@glibc
def test_with_little_memory_freed_memory_is_returned_to_the_system_at_once() -> None:
    resident, resident_after_return = steps("1000")[1], steps(str(2**50))[1]
    assert resident - resident_after_return > 0.9 * HELD
