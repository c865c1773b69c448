"""This machine as the place where jobs run: they are processes here and end with the step that launched them."""

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
    """Jobs run on this machine; answers as of Platform."""

    detached: bool = False
    remote: bool = False
    launcher_timeout: float = JobSpec.launcher_timeout

    def check(self, resources: JobResources) -> None:
        """Refuse jobs of several nodes."""
        for job, found in resources.by_job.items():
            if found.nodes > 1:
                raise InputError(
                    f"resources.{job}.nodes: {found.nodes} nodes need a cluster: add --on cluster, or set it to 1"
                )

    def prepare(self, run: Run) -> None:
        """Have a process import what a job of a single process will need: the evaluation is one in every run."""
        warm.begin(run)

    def job_device(self, resources: Resources) -> Literal["cpu", "cuda"]:
        """What this machine has, unless the recipe says which."""
        return device_here() if resources.device == "auto" else resources.device

    def cores(self, resources: Resources) -> int:
        """All that there are."""
        return os.cpu_count() or 1

    def job_folder(self, lease: Lease) -> Path:
        """The lease's own: what a job without a launcher would write there is nobody's."""
        return lease.folder

    def launcher(self, run: Run, step: str, key: str) -> Launcher:
        """Processes of this machine."""
        return LocalLauncher(run)

    def reachable(self, url: str) -> str:
        """The page itself; `understudy ui` shows what lies in a file."""
        return url if url.startswith("http") else "understudy ui"
