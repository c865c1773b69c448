import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHILD = """
import sys, time
from pathlib import Path
from understudy.agent.parent import die_with_parent
die_with_parent()
Path(sys.argv[1]).touch()
time.sleep(60)
"""

PARENT = """
import subprocess, sys
from understudy.agent.parent import die_with_parent, environment
die_with_parent()
child = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], env=environment(), start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_met(condition: object, seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(0.01)
    return bool(condition())  # type: ignore[operator]


@pytest.mark.parametrize("generations", [1, 2])
def test_descendants_die_with_a_killed_parent(tmp_path: Path, generations: int) -> None:
    """Each child is in a session of its own, as torchrun starts its ranks: a signal to the group would miss it."""
    ready = tmp_path / "ready"
    middle = [PARENT] * (generations - 1)
    arguments = [sys.executable, "-c", PARENT, *[part for parent in middle for part in (parent,)], CHILD, str(ready)]
    parent = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as out:
        children = [int(out.readline()) for _ in range(generations)]
        assert is_met(ready.exists)
        assert all(is_alive(pid) for pid in children)
        parent.kill()
        parent.wait()
        assert is_met(lambda: not any(is_alive(pid) for pid in children), 5)


def test_a_child_whose_parent_is_already_dead_ends_at_once(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    environment = {**os.environ, "UNDERSTUDY_PARENT": str(ended.pid)}
    child = subprocess.run([sys.executable, "-c", CHILD, str(ready)], env=environment, timeout=60, check=False)
    assert child.returncode == 1
    assert not ready.exists()


def test_a_process_started_by_hand_has_no_parent_to_ask_for(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(ready)])
    assert is_met(ready.exists)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
