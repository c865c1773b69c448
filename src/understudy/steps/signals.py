"""A step's process: its reaction to a stop request, to the end of the run's driver, and to its pod's eviction."""

import logging
import os
import signal
import threading
import time
from types import FrameType
from typing import NoReturn

from understudy.errors import STOPPED
from understudy.launch.platform import platform
from understudy.steps import last_words
from understudy.store import Run
from understudy.store.lease import Process

log = logging.getLogger(__name__)

ASKED_TO_END = "this process was asked to end (SIGTERM): what is done is kept, and the next attempt goes on from there"
HEARTBEAT_INTERVAL = 3600.0  # seconds between heartbeats of a run, which counts as dead after a day without one


class Evicted(SystemExit):
    """A step's process was evicted: the step is neither done nor failed."""


def connect_to_run(run: Run) -> None:
    """Tie this process to its run: end with the run's driver, and stop at a checkpoint on SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _evict if platform().detached else lambda *_: run.request_stop())
    threading.Thread(target=_send_heartbeats, args=(run,), name="heartbeat", daemon=True).start()
    driver = run.facts.driver
    if driver:
        threading.Thread(target=_end_with, args=(driver,), name="driver", daemon=True).start()


def _evict(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Leave an evicted pod: the lease is released, and the job keeps running for the next launcher."""
    log.warning(ASKED_TO_END)  # now: a task that KFP terminates is killed two seconds later
    last_words.leave(ASKED_TO_END)
    raise Evicted(STOPPED)


def _send_heartbeats(run: Run) -> None:
    """Renew the run's heartbeat: a step may wait for days without any other change, such as in a queue."""
    never = threading.Event()
    while not never.wait(HEARTBEAT_INTERVAL):
        run.live()


def _end_with(driver: Process) -> None:
    while not driver.is_gone():
        time.sleep(0.25)
    os._exit(STOPPED)
