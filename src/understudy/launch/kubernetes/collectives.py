"""A benchmark of all-reduces over a pool's nodes, launched like a training.

python -m understudy.launch.kubernetes.collectives POOL NODES PROCESSES, in a launcher's pod. The job's folder is
in the store while it runs, and is removed afterwards.
"""

import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from understudy import logs
from understudy.errors import STOPPED, UnderstudyError
from understudy.jobs import attempts, collectives
from understudy.jobs.collectives import Collectives
from understudy.jobs.specification import JobSpec
from understudy.kube.identity import Identity
from understudy.kube.settings import RUN_ID, cluster_settings
from understudy.launch.kubernetes.launcher import KubernetesLauncher
from understudy.launch.kubernetes.platform import KubernetesPlatform
from understudy.launch.kubernetes.rendering.task_config import NOTHING
from understudy.launch.metrics import JobMetrics
from understudy.recipe import Resources
from understudy.revision import build
from understudy.store import Lease, Store
from understudy.store.files import sha256

log = logging.getLogger("understudy.launch.kubernetes.collectives")  # `python -m` calls this module __main__
HANG = 180  # seconds; the first collective may take a while to connect
HOME = "UNDERSTUDY_HOME"


@dataclass(frozen=True)
class Watch:
    """Hooks of this process, which waits for the job."""

    lease: Lease
    metrics: JobMetrics

    def __call__(self) -> None:
        """Check the lease."""
        self.lease.check()

    def tell(self, text: str) -> None:
        """Do nothing: the controller has logged it."""


def main() -> int:
    """Measure and print the table; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))
    logs.configure()
    pool, nodes, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    try:
        _measure(
            os.environ[RUN_ID],
            Resources(pool=pool, nodes=nodes, processes=processes, hang_timeout=HANG, max_restarts=0),
        )
    except UnderstudyError as error:
        log.error("%s", error)
        return error.exit_code
    return 0


def _measure(run: str, resources: Resources) -> None:
    key = sha256(run.encode())
    lease = Store(Path(os.environ[HOME]) / "store").acquire(key)
    assert lease is not None, "the key is this run's alone"
    try:
        spec = _specification(lease, resources)
        cluster = cluster_settings()
        launcher = KubernetesLauncher(cluster.kind, Identity(run, spec.role, key), time.time(), cluster, NOTHING)
        outcome = launcher.run(spec, Watch(lease, JobMetrics(run, spec.role, "", "bytes")))
        if outcome.exit_code:
            raise UnderstudyError(f"no measure: {outcome.message}")
        attempt = attempts.latest(Path(spec.folder))
        assert attempt is not None, "who ended well has begun"
        for line in collectives.table(collectives.read(attempt / "output"), spec.world_size):
            print(line)
    finally:
        lease.finish()


def _specification(lease: Lease, resources: Resources) -> JobSpec:
    platform = KubernetesPlatform()
    return JobSpec(
        version=build(),
        role="collectives",
        folder=str(platform.job_folder(lease)),
        payload=Collectives(),
        resources=resources,
        section="--collectives",
        threads=1,
        device=platform.job_device(resources),
        logs=str(lease.folder.parent / "logs"),
        supervised=True,
        launcher_timeout=platform.launcher_timeout,
    )


if __name__ == "__main__":
    sys.exit(main())
