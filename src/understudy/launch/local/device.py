"""The device of this machine or pod."""

from pathlib import Path
from typing import Literal


def device_here() -> Literal["cpu", "cuda"]:
    """Detect the device without importing torch."""
    return "cuda" if Path("/proc/driver/nvidia/version").exists() and Path("/dev/nvidiactl").exists() else "cpu"
