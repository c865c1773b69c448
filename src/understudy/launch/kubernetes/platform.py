"""The cluster platform: this process runs in a pod, and its jobs in other pods, which outlive it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from understudy.kube.kind import JobKind
from understudy.kube.owner import KFP_POD
from understudy.kube.quantities import amount
from understudy.kube.settings import cluster_settings
from understudy.launch.kubernetes.rendering import task_config
from understudy.launch.launcher import Launcher
from understudy.recipe import JobResources, Resources
from understudy.store import Run
from understudy.store.lease import Lease

KFP_TIMEOUT = 40.0
"""Seconds without a launcher after which the ranks of a KFP run exit. "Terminate" kills a task, and nothing restarts
it; so the minute in which the ranks have to end has room for two checks of the lease, a step and a checkpoint."""


@dataclass(frozen=True)
class KubernetesPlatform:
    """Runs jobs in the cluster of this process; methods as of Platform."""

    kind: JobKind | None = None
    """The kind of job; None for that in the cluster's settings."""
    detached: bool = True
    remote: bool = True

    @property
    def launcher_timeout(self) -> float:
        """The cluster's setting, at most KFP_TIMEOUT in a task of KFP."""
        timeout = cluster_settings().launcher_timeout
        return min(timeout, KFP_TIMEOUT) if KFP_POD in os.environ else timeout

    def check(self, resources: JobResources) -> None:
        """Do nothing: a submission calls runs.submission.check(), and the launcher checks again."""

    def prepare(self, run: Run) -> None:
        """Do nothing: jobs run in other pods."""

    def job_device(self, resources: Resources) -> Literal["cpu", "cuda"]:
        """The recipe's device; for auto, cuda if the job's pool or the task that launches it has GPUs."""
        if resources.device != "auto":
            return resources.device
        has_gpus = cluster_settings().pool_of(resources, "resources").gpu or task_config.current_task().gpus
        return "cuda" if has_gpus else "cpu"

    def cores(self, resources: Resources) -> int:
        """The cores that the job requests; by default as many as this process's node has."""
        return max(1, int(amount(resources.cpu))) if resources.cpu else os.cpu_count() or 1

    def job_folder(self, lease: Lease) -> Path:
        """A folder beside the lease's, since a job outlives the launcher's pod, and so the lease."""
        folder = lease.folder.parent / "job"
        folder.mkdir(exist_ok=True)
        return folder

    def launcher(self, run: Run, step: str, key: str) -> Launcher:
        """The launcher for the cluster's operator."""
        from understudy.kube.identity import Identity
        from understudy.launch.kubernetes.launcher import KubernetesLauncher

        cluster = cluster_settings()
        return KubernetesLauncher(
            kind=self.kind or cluster.kind,
            identity=Identity(run.id, step, key),
            since=run.facts.started,
            cluster=cluster,
            task=task_config.current_task(),
        )

    def reachable(self, url: str) -> str:
        """The URL; the name of a Service resolves only in its namespace, so a port is forwarded first."""
        if not url.startswith("http"):
            return "understudy ui"
        server = urlsplit(url)
        if "." in str(server.hostname):
            return url
        port = server.port or (443 if server.scheme == "https" else 80)
        forward = f"kubectl port-forward service/{server.hostname} 5000:{port} in the run's namespace"
        return f"{forward}, then {server._replace(netloc='localhost:5000').geturl()}"
