"""A dump of torch's flight recorder when a rank hangs: its collectives, as JSON beside its stacks.

Stacks show where Python is. Only the recorder shows which collective a rank waits in, and whether the others reached
the same one: it has the number, group, sizes and state of each (PyTorch's tutorial "Flight Recorder for Debugging
Stuck Jobs"). It records automatically; its content has to be written before the rank is ended.
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

BACKENDS = ("gloo", "nccl", "nccl2")  # torch 2.15 resolves "nccl" to the last


class FlightRecorder(threading.Thread):
    """A thread that writes a rank's collectives when it has made no progress for some time.

    Args:
        path: the file, which exists only after a hang.
        seconds: time without a heartbeat that counts as a hang.
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
        """Stop the thread: there will be no more heartbeats."""
        self._over.set()

    def run(self) -> None:
        """Wait for a hang."""
        while not self._over.wait(max(0.0, self._until - time.monotonic())):
            if time.monotonic() >= self._until:
                self._write()
                self.restart_timer()

    def _write(self) -> None:
        try:
            traces = collectives()
            if not traces:
                self._path.unlink(missing_ok=True)  # left by an earlier hang
                return
            temporary = self._path.with_name(f".{self._path.name}")
            temporary.write_text(json.dumps(traces))
            os.replace(temporary, self._path)
        except (OSError, RuntimeError) as error:  # such as a full volume: the stacks may still be there
            log.warning("%s: cannot be written (%s)", self._path, error)


def collectives() -> dict[str, Any]:
    """The latest collectives of this process by backend, the oldest first; empty before the rendezvous."""
    torch = sys.modules.get("torch")
    c10d = getattr(getattr(torch, "_C", None), "_distributed_c10d", None)
    if c10d is None:  # torch is not imported, or only in part
        return {}
    traces = {backend: json.loads(c10d._dump_fr_trace_json(backend=backend)) for backend in BACKENDS}
    if hasattr(c10d, "_dump_nccl_trace_json"):  # TORCH_DIST_USE_NCCL2=0 selects the previous one
        traces["nccl-legacy"] = json.loads(c10d._dump_nccl_trace_json())
    return {backend: trace for backend, trace in traces.items() if trace.get("entries")}
