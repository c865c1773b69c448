"""The pod of one node of a job, the same for every operator: node selection, resources, volumes and environment.

From the store it mounts its work and its inputs: no other job's files, and nothing writable that others read. These are
mounts of one volume: with the same claim as two volumes a pod waits forever for the second (Kubernetes 1.34).
"""

import os
import posixpath

from understudy import logs
from understudy.agent import node_cache
from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.kube.identity import KEY, NO_SIDECAR, Identity
from understudy.kube.kind import JobKind
from understudy.kube.objects import (
    Container,
    PodSecurityContext,
    PodSpec,
    PodTemplate,
    Toleration,
    Variable,
    VolumeMount,
    VolumeSource,
)
from understudy.kube.quantities import amount
from understudy.kube.settings import Cluster, Pool, affinity, requests
from understudy.launch.kubernetes.rendering.pod_patch import patched
from understudy.launch.kubernetes.rendering.pod_security import SECURITY, container, volumes
from understudy.recipe import Resources

CACHE = "/var/cache/understudy"  # where the node cache is mounted
GROUP = 1000  # the group of the images and of the store
GONE_NODE = 30  # seconds until a pod leaves a node that does not respond


def command(spec: JobSpec) -> list[str]:
    """The command that starts the ranks on one node."""
    return ["python", "-m", "understudy.agent.node", str(spec.path)]


def pod_template(
    kind: JobKind, spec: JobSpec, identity: Identity, resources: Resources, cluster: Cluster
) -> PodTemplate:
    """The pod template of one node.

    Raises:
        InputError: the recipe names a pool that this cluster does not have, or the store is not on the claim.
    """
    pool = cluster.pool_of(resources, spec.section)
    pod: PodSpec = {
        "serviceAccountName": cluster.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": resources.termination_grace_period,
        "securityContext": _security(cluster),
        "nodeSelector": pool.node_selector,
        "tolerations": [*pool.tolerations, _toleration("not-ready"), _toleration("unreachable")],
        "containers": [_container(kind, spec, resources, cluster, pool)],
        "volumes": volumes(cluster, _sources(resources, cluster)),
    }
    if resources.priority:
        pod["priorityClassName"] = resources.priority
    pod_affinity = affinity(cluster, pool, near={KEY: identity.labels[KEY]})
    if pod_affinity:
        pod["affinity"] = pod_affinity
    labels = identity.labels | cluster.store_label | NO_SIDECAR
    return patched({"metadata": {"labels": labels}, "spec": pod}, pool.pod_patch)


def _sources(resources: Resources, cluster: Cluster) -> dict[str, VolumeSource]:
    """The volumes of a job's pod, besides the store and /tmp, by name."""
    sources: dict[str, VolumeSource] = {"shm": {"emptyDir": {"medium": "Memory", "sizeLimit": resources.shared_memory}}}
    if cluster.cache:
        sources["cache"] = cluster.cache
    return sources


def _container(kind: JobKind, spec: JobSpec, resources: Resources, cluster: Cluster, pool: Pool) -> Container:
    resource_requests = dict(requests(resources, pool))
    mounts: list[VolumeMount] = [{"name": "shm", "mountPath": "/dev/shm"}]
    if cluster.cache:
        mounts.append({"name": "cache", "mountPath": CACHE})
    rendered = container(kind.container, cluster, command(spec), [*mounts, *_store_mounts(spec, cluster)])
    rendered["env"] = _environment(spec, cluster)
    # No limit for CPU: a rank may use spare cores, which can be taken back, unlike memory.
    limits = {name: value for name, value in resource_requests.items() if name != "cpu"}
    rendered["resources"] = {"requests": resource_requests, "limits": limits}
    return rendered


def _store_mounts(spec: JobSpec, cluster: Cluster) -> list[VolumeMount]:
    """Mounts of the store's folders for ranks, at the same paths as in the launcher.

    Ranks write to the job's folder and their logs. The folder above the job's shows whether a launcher still watches.
    """
    work = posixpath.dirname(spec.folder)
    read = [path for path in spec.payload.reads.values() if not _is_below(path, work)]
    return [
        *(_part(path, cluster, read_only=True) for path in sorted({work, *read})),
        _part(spec.folder, cluster),
        _part(str(spec.rank_logs), cluster),
    ]


def _part(path: str, cluster: Cluster, *, read_only: bool = False) -> VolumeMount:
    """A folder of the claim, as a mount."""
    if not _is_below(path, cluster.mount):
        raise InputError(
            f"UNDERSTUDY_HOME: {path} is not on the claim, which pods mount at {cluster.mount} (`mount` in the "
            "cluster's settings); set it to a folder below that"
        )
    mount: VolumeMount = {"name": "store", "mountPath": path, "subPath": posixpath.relpath(path, cluster.mount)}
    return {**mount, "readOnly": True} if read_only else mount


def _is_below(path: str, folder: str) -> bool:
    return posixpath.commonpath([path, folder]) == folder and path != folder


def fs_group(cluster: Cluster) -> int | None:
    """The fsGroup of a job's volumes: a new disk belongs to root, while an emptyDir is open to every user."""
    return None if not cluster.cache or "emptyDir" in cluster.cache else GROUP


def _security(cluster: Cluster) -> PodSecurityContext:
    group = fs_group(cluster)
    if group is None:
        return SECURITY
    # The default changes the group of every file at each start, which takes minutes if there are many.
    return {**SECURITY, "fsGroup": group, "fsGroupChangePolicy": "OnRootMismatch"}


def _cache(cluster: Cluster) -> dict[str, str]:
    """Environment variables of the node agent's cache."""
    if not cluster.cache:
        return {}
    variables = {node_cache.CACHE: CACHE}
    limit = (cluster.cache.get("emptyDir") or {}).get("sizeLimit")
    if limit:
        variables[node_cache.LIMIT] = str(int(amount(str(limit))))
    return variables


def _toleration(condition: str) -> Toleration:
    """How long a pod stays on a node that does not respond: by default Kubernetes waits for 300 s."""
    key = f"node.kubernetes.io/{condition}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": GONE_NODE}


def _environment(spec: JobSpec, cluster: Cluster) -> list[Variable]:
    values = {
        "OMP_NUM_THREADS": str(spec.threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",  # the step has fetched everything, once
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/tmp",
        logs.VARIABLE: os.environ.get(logs.VARIABLE, "text"),  # a job logs as its launcher does
        **cluster.environment,
        **_cache(cluster),
    }
    node: Variable = {"name": "UNDERSTUDY_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return [*(Variable(name=name, value=value) for name, value in values.items()), node]
