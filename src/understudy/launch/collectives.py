"""Which collectives a rank was in when it hung: what torch's flight recorder holds, as JSON beside the rank's stacks.

The stacks say where Python stands. Which collective a rank waits in, and whether the others have come to the same one,
only the recorder knows: of every collective its number, group, sizes and state (PyTorch's tutorial "Flight Recorder for
Debugging Stuck Jobs"). It records by itself; somebody has to write it down before the rank is ended.
"""

import sys
import threading
import time
from pathlib import Path


class Collectives(threading.Thread):
    """Writes them down when a rank has not moved for some seconds.

    Args:
        path: the file, which is there only after a hang.
        device: whose collectives count: NCCL's on cuda, gloo's on cpu.
        seconds: without a sign of life.
    """

    def __init__(self, path: Path, device: str, seconds: float) -> None:
        super().__init__(name="collectives", daemon=True)
        self._path, self._device, self._seconds = path, device, seconds
        self._over = threading.Event()
        self.moved()

    def moved(self) -> None:
        """The rank has moved."""
        self._until = time.monotonic() + self._seconds

    def stop(self) -> None:
        """Nothing more is to be expected."""
        self._over.set()

    def run(self) -> None:
        """Wait for a hang."""
        while not self._over.wait(max(0.0, self._until - time.monotonic())):
            if time.monotonic() >= self._until:
                self._write()
                self.moved()

    def _write(self) -> None:
        try:
            if said := recorded(self._device):
                self._path.write_bytes(said)
        except OSError as error:  # a full volume, say: the stacks may still be there
            print(f"{self._path}: cannot be written ({error.strerror})", file=sys.stderr, flush=True)


def recorded(device: str) -> bytes | None:
    """The newest collectives of this process, the oldest first; None before it has met the other ranks."""
    if "torch.distributed" not in sys.modules:
        return None
    from torch import distributed
    from torch._C import _distributed_c10d as c10d

    if not distributed.is_initialized():
        return None
    if device == "cuda":
        return bytes(c10d._dump_nccl_trace_json())  # type: ignore[attr-defined]  # torch's stubs do not know it
    return bytes(c10d._dump_fr_trace_json())
