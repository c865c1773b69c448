import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from understudy.train.memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
for turn in range(24):
    if turn == 12:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [torch.ones(2**size) for size in (20, 22, 24)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    command = [sys.executable, "-c", FAULTS, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_what_was_freed_is_taken_again_without_asking_the_system() -> None:
    assert page_faults("kept") < 0.02 * page_faults("as it is")
