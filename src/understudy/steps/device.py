"""The device and the threads that a job gets, found without importing torch."""

import os
from pathlib import Path
from typing import Literal

from understudy.launch.kubernetes import task_config
from understudy.launch.kubernetes.settings import cluster_settings, in_cluster
from understudy.recipe import Resources


def device(resources: Resources) -> Literal["cpu", "cuda"]:
    """Cpu or cuda: what auto means on this machine or for the job's pods."""
    if resources.device != "auto":
        return resources.device
    if in_cluster():
        has_gpus = cluster_settings().pool(resources, "resources").gpu or task_config.of_this_step().gpus
        return "cuda" if has_gpus else "cpu"
    return device_here()


def device_here() -> Literal["cpu", "cuda"]:
    """Cpu or cuda: what this process's own machine or pod has."""
    return "cuda" if Path("/proc/driver/nvidia/version").exists() and Path("/dev/nvidiactl").exists() else "cpu"


def threads(resources: Resources) -> int:
    """Threads of a process: all that a single one may take, one where there are several."""
    if resources.threads or resources.nodes * resources.processes > 1:
        return resources.threads or 1
    if in_cluster() and resources.cpu:
        from understudy.launch.kubernetes.quantities import amount

        return max(1, int(amount(resources.cpu)))
    return os.cpu_count() or 1
