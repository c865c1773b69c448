"""What this process's own machine or pod can compute on."""

from pathlib import Path
from typing import Literal


def device_here() -> Literal["cpu", "cuda"]:
    """Cpu or cuda, found without importing torch."""
    return "cuda" if Path("/proc/driver/nvidia/version").exists() and Path("/dev/nvidiactl").exists() else "cpu"
