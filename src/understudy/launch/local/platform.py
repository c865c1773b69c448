"""The local platform: jobs are processes of this machine and end with the step that launched them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.launch.launcher import Launcher
from understudy.launch.local import warm
from understudy.launch.local.device import device_here
from understudy.launch.local.launcher import LocalLauncher
from understudy.recipe import JobResources, Resources
from understudy.store import Run
from understudy.store.lease import Lease


@dataclass(frozen=True)
class LocalPlatform:
    """Runs jobs on this machine; methods as of Platform."""

    detached: bool = False
    remote: bool = False
    launcher_timeout: float = JobSpec.launcher_timeout

    def check(self, resources: JobResources) -> None:
        """Reject jobs of several nodes."""
        for job, resource in resources.by_job.items():
            if resource.nodes > 1:
                raise InputError(
                    f"resources.{job}.nodes: {resource.nodes} nodes need a cluster: add --on cluster, or set it to 1"
                )

    def prepare(self, run: Run) -> None:
        """Start the warm process, for jobs of a single process: by default the evaluation of every run is one."""
        warm.begin(run)

    def job_device(self, resources: Resources) -> Literal["cpu", "cuda"]:
        """The recipe's device; for auto, this machine's."""
        return device_here() if resources.device == "auto" else resources.device

    def cores(self, resources: Resources) -> int:
        """All cores of this machine."""
        return os.cpu_count() or 1

    def job_folder(self, lease: Lease) -> Path:
        """The lease's folder: a job that outlives its launcher loses the path with the lease."""
        return lease.folder

    def launcher(self, run: Run, step: str, key: str) -> Launcher:
        """The launcher of local processes."""
        return LocalLauncher(run)

    def reachable(self, url: str) -> str:
        """The URL; for a page in a local file, `understudy ui`."""
        return url if url.startswith("http") else "understudy ui"
