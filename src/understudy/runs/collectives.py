"""The Job that measures a pool's collectives: submitted, followed to its end, and removed in any case."""

import secrets
import time
from collections.abc import Callable

from understudy.errors import InputError, UnderstudyError
from understudy.kube.api import Kube
from understudy.kube.objects import KubernetesObject
from understudy.kube.settings import Cluster
from understudy.launch.kubernetes import preflight
from understudy.recipe import Resources
from understudy.runs import following, submission
from understudy.runs.orphans import stop

DEADLINE = 900  # seconds, including image pulls
MODULE = "understudy.launch.kubernetes.collectives"


def measure(kube: Kube, cluster: Cluster, resources: Resources, report: Callable[[str], None]) -> int:
    """Measure the collectives over nodes of a pool.

    Args:
        kube: the namespace.
        cluster: its settings.
        resources: the pool, the number of nodes, and of processes on each.
        report: called with each line of the log, including the table.

    Returns:
        The exit code.

    Raises:
        InputError: the cluster has no such pool, or cannot run the job.
        UnderstudyError: it exceeded its deadline, or its pod cannot start.
    """
    _check(kube, cluster, resources)
    name = f"collectives-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    kube.call(kube.batch.create_namespaced_job, kube.namespace, render(name, cluster, resources))
    try:
        return following.follow(kube, name, report)
    except UnderstudyError as error:
        raise UnderstudyError(
            f"{error}. A measurement may take {DEADLINE // 60} minutes; the last line above shows its state"
        ) from error
    finally:
        stop(kube, name)
        kube.call(kube.batch.delete_namespaced_job, name, kube.namespace, propagation_policy="Background")


def _check(kube: Kube, cluster: Cluster, resources: Resources) -> None:
    cluster.pool_of(resources, "--collectives")
    if resources.nodes * resources.processes < 2:
        raise InputError("--nodes, --processes: a collective needs at least two processes")
    if cluster.one_node and resources.nodes > 1:
        raise InputError(f"--nodes: {resources.nodes}; this cluster's store is on one node (one_node in its settings)")
    preflight.check(kube, cluster.kind, cluster, resources, "--collectives")


def render(name: str, cluster: Cluster, resources: Resources) -> KubernetesObject:
    """The Job: like a run's, without a recipe, and without credentials that it does not need."""
    job = submission.render(name, cluster, cluster.default_pool)
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    container["command"] = ["python", "-m", MODULE, str(resources.pool), str(resources.nodes), str(resources.processes)]
    container["envFrom"] = []
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != "recipe"]
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "recipe"]
    job["spec"] |= {"activeDeadlineSeconds": DEADLINE, "backoffLimit": 0}
    return job
