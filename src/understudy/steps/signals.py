"""What a step's process hears from outside: a wish to stop, the end of the run's driver, the end of its pod."""

import os
import signal
import threading
import time
from types import FrameType
from typing import NoReturn

from understudy.errors import STOPPED
from understudy.launch.platform import platform
from understudy.store import Run
from understudy.store.lease import Process

LIFE = 3600.0  # seconds between two heartbeats of a run, which counts as dead after a day without one


class Left(SystemExit):
    """A step's process had to go: the step is neither done nor failed."""


def watch_over(run: Run) -> None:
    """Let this process follow its run's fate: end with the run's driver, and stop at a checkpoint on SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave if platform().detached else lambda *_: run.request_stop())
    threading.Thread(target=_show_life, args=(run,), name="life", daemon=True).start()
    driver = run.facts.driver
    if driver:
        threading.Thread(target=_end_with, args=(driver,), name="driver", daemon=True).start()


def _leave(_signal: int, _frame: FrameType | None) -> NoReturn:
    """This pod has to go: what it holds is given back, and its job goes on for whoever comes next."""
    raise Left(STOPPED)


def _show_life(run: Run) -> None:
    """A step may wait for days, in a queue say, and change nothing in its run."""
    never = threading.Event()
    while not never.wait(LIFE):
        run.live()


def _end_with(driver: Process) -> None:
    while not driver.is_gone():
        time.sleep(0.25)
    os._exit(STOPPED)
