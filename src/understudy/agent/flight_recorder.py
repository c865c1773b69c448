"""Which collectives a rank was in when it hung: what torch's flight recorder holds, as JSON beside the rank's stacks.

The stacks show where Python is. Which collective a rank waits in, and whether the others reached the same one, only the
recorder knows: of every collective its number, group, sizes and state (PyTorch's tutorial "Flight Recorder for
Debugging Stuck Jobs"). It records by itself; its content has to be written before the rank is ended.
"""

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

BACKENDS = ("gloo", "nccl", "nccl2")  # the last is what torch 2.15 makes of "nccl"


class FlightRecorder(threading.Thread):
    """Writes the collectives when a rank has made no progress for some seconds.

    Args:
        path: the file, which is there only after a hang.
        seconds: without a heartbeat.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(name="collectives", daemon=True)
        self._path, self._seconds = path, seconds
        self._over = threading.Event()
        self.restart_timer()

    def restart_timer(self) -> None:
        """Restart the timer: the rank has made progress."""
        self._until = time.monotonic() + self._seconds

    def stop(self) -> None:
        """Stop: no more heartbeats will come."""
        self._over.set()

    def run(self) -> None:
        """Wait for a hang."""
        while not self._over.wait(max(0.0, self._until - time.monotonic())):
            if time.monotonic() >= self._until:
                self._write()
                self.restart_timer()

    def _write(self) -> None:
        try:
            said = collectives()
            if not said:
                self._path.unlink(missing_ok=True)  # an earlier hang's
                return
            aside = self._path.with_name(f".{self._path.name}")
            aside.write_text(json.dumps(said))
            os.replace(aside, self._path)
        except (OSError, RuntimeError) as error:  # a full volume, say: the stacks may still be there
            log.warning("%s: cannot be written (%s)", self._path, error)


def collectives() -> dict[str, Any]:
    """The newest collectives of this process, by backend, the oldest first; nothing before the rendezvous."""
    torch = sys.modules.get("torch")
    c10d = getattr(getattr(torch, "_C", None), "_distributed_c10d", None)
    if c10d is None:  # not imported, or half of it
        return {}
    found = {backend: json.loads(c10d._dump_fr_trace_json(backend=backend)) for backend in BACKENDS}
    if hasattr(c10d, "_dump_nccl_trace_json"):  # TORCH_DIST_USE_NCCL2=0 brings the one before back
        found["nccl-legacy"] = json.loads(c10d._dump_nccl_trace_json())
    return {backend: trace for backend, trace in found.items() if trace.get("entries")}
