"""A cluster as the place where jobs run: this process is a pod's, its jobs have pods of their own and outlive it."""

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
"""Seconds without a launcher after which the ranks of a KFP run leave. "Terminate" kills a task, and nothing starts it
again; so the minute in which they have to end has room for two looks at the lease, a step and a checkpoint."""


@dataclass(frozen=True)
class KubernetesPlatform:
    """Jobs run in the cluster that this process runs in; answers as of Platform."""

    kind: JobKind | None = None
    """The kind of job; None: as the cluster's settings say."""
    detached: bool = True
    remote: bool = True

    @property
    def launcher_timeout(self) -> float:
        """As the cluster's settings say, and no longer than KFP_TIMEOUT in a task of KFP."""
        given = cluster_settings().launcher_timeout
        return min(given, KFP_TIMEOUT) if KFP_POD in os.environ else given

    def check(self, resources: JobResources) -> None:
        """Nothing is refused here: whoever submits a run asks runs.submission.check(), and the launcher asks again."""

    def prepare(self, run: Run) -> None:
        """Nothing: jobs run in other pods."""

    def job_device(self, resources: Resources) -> Literal["cpu", "cuda"]:
        """GPUs where the job's pool or the task that launches it has some, unless the recipe says which."""
        if resources.device != "auto":
            return resources.device
        has_gpus = cluster_settings().pool_of(resources, "resources").gpu or task_config.of_this_step().gpus
        return "cuda" if has_gpus else "cpu"

    def cores(self, resources: Resources) -> int:
        """Those that the job asks for, or all of its node."""
        return max(1, int(amount(resources.cpu))) if resources.cpu else os.cpu_count() or 1

    def job_folder(self, lease: Lease) -> Path:
        """Beside the lease's, not in it: a job outlives the launcher's pod, and so the lease."""
        folder = lease.folder.parent / "job"
        folder.mkdir(exist_ok=True)
        return folder

    def launcher(self, run: Run, step: str, key: str) -> Launcher:
        """Objects of the cluster's operator."""
        from understudy.kube.identity import Identity
        from understudy.launch.kubernetes.launcher import KubernetesLauncher

        cluster = cluster_settings()
        return KubernetesLauncher(
            kind=self.kind or cluster.kind,
            identity=Identity(run.id, step, key),
            since=run.facts.started,
            cluster=cluster,
            task=task_config.of_this_step(),
        )

    def reachable(self, url: str) -> str:
        """The name of a Service is known in its namespace alone: to others a port is forwarded."""
        if not url.startswith("http"):
            return "understudy ui"
        server = urlsplit(url)
        if "." in str(server.hostname):
            return url
        port = server.port or (443 if server.scheme == "https" else 80)
        forward = f"kubectl port-forward service/{server.hostname} 5000:{port} in the run's namespace"
        return f"{forward}, then {server._replace(netloc='localhost:5000').geturl()}"
