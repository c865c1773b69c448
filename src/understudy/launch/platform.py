"""Where jobs run, on this machine or in a cluster: the one place that chooses, and what other code asks about it."""

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
    """Where jobs run."""

    @property
    def detached(self) -> bool:
        """Whether a job outlives the process that launched it, and the next launcher finds it and watches it.

        SIGTERM then means an eviction of this process, not a stop of the run. The ranks are supervised: those that
        end early are started again, as the job's next attempt.
        """

    @property
    def remote(self) -> bool:
        """Whether what this process prints is read on another machine, where its files and names mean nothing."""

    @property
    def launcher_timeout(self) -> float:
        """Seconds without a heartbeat of the launcher after which ranks take a checkpoint and leave."""

    def check(self, resources: JobResources) -> None:
        """Refuse a recipe's jobs that cannot run here, before any work.

        Raises:
            InputError: a job asks for what is not here.
        """

    def prepare(self, run: Run) -> None:
        """Get ready for a run's jobs."""

    def job_device(self, resources: Resources) -> Device:
        """What a job's ranks compute on, found without importing torch.

        Raises:
            InputError: the recipe names a pool that this cluster does not have.
        """

    def cores(self, resources: Resources) -> int:
        """Cores that a job of one process may take."""

    def job_folder(self, lease: Lease) -> Path:
        """The folder of the job of the step that this lease is for."""

    def launcher(self, run: Run, step: str, key: str) -> Launcher:
        """Who runs the job of a step, by the step's key."""

    def reachable(self, url: str) -> str:
        """How a reader of the output gets to a web page."""


def platform() -> Platform:
    """Where this process's jobs run, as the environment says.

    Raises:
        InputError: it names no launcher that there is.
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
    known = ", ".join((LOCAL, *KINDS))
    raise InputError(f"{LAUNCHER}: {name!r} is no launcher; there are {known}, and {CLUSTER}: as its settings say")
