"""The platform of jobs, this machine or a cluster: its interface, and the one function that selects it."""

import os
from pathlib import Path
from typing import Literal, Protocol

from understudy.errors import InputError
from understudy.kube.kind import KINDS
from understudy.kube.settings import LAUNCHER
from understudy.launch.launcher import Launcher
from understudy.recipe import JobResources, Resources
from understudy.store import Run
from understudy.store.lease import Lease

Device = Literal["cpu", "cuda"]
LOCAL, CLUSTER = "local", "cluster"


class Platform(Protocol):
    """The machine or cluster that runs jobs."""

    @property
    def detached(self) -> bool:
        """Whether a job outlives the process that launched it, and the next launcher adopts it.

        SIGTERM then means an eviction of this process, not a stop of the run. The ranks are supervised: those that
        end early restart as the job's next attempt.
        """

    @property
    def remote(self) -> bool:
        """Whether this process's output is read on another machine, where its paths and host names mean nothing."""

    @property
    def launcher_timeout(self) -> float:
        """Seconds without a launcher heartbeat after which ranks take a checkpoint and exit."""

    def check(self, resources: JobResources) -> None:
        """Reject a recipe whose jobs cannot run here, before any work.

        Raises:
            InputError: a job needs something that this platform lacks.
        """

    def prepare(self, run: Run) -> None:
        """Prepare for a run's jobs."""

    def job_device(self, resources: Resources) -> Device:
        """The device of a job's ranks, determined without importing torch.

        Raises:
            InputError: the recipe names a pool that this cluster does not have.
        """

    def cores(self, resources: Resources) -> int:
        """Number of cores for a job of one process."""

    def job_folder(self, lease: Lease) -> Path:
        """The job's folder for the step of this lease."""

    def launcher(self, run: Run, step: str, key: str) -> Launcher:
        """The launcher of a step's job; `key` is the step's key."""

    def reachable(self, url: str) -> str:
        """How to open a web page: a URL, or a command and a URL."""


def platform() -> Platform:
    """The platform of this process's jobs, selected by an environment variable.

    Raises:
        InputError: the variable names an unknown launcher.
    """
    from understudy.launch.kubernetes.platform import KubernetesPlatform
    from understudy.launch.local.platform import LocalPlatform

    name = os.environ.get(LAUNCHER) or LOCAL
    if name == LOCAL:
        return LocalPlatform()
    if name == CLUSTER:
        return KubernetesPlatform()
    if name in KINDS:
        return KubernetesPlatform(KINDS[name])
    names = ", ".join((LOCAL, *KINDS))
    raise InputError(f"{LAUNCHER}: {name!r} is not a launcher; choose {names}, or {CLUSTER} for its settings' choice")
