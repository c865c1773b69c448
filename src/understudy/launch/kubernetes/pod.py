"""The pod of one node of a job, as every operator makes it: where it goes, what it may take, what its ranks see."""

import os
from typing import Any

from understudy import logs
from understudy.agent import node_cache
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes.identity import KEY, Identity
from understudy.launch.kubernetes.kind import JobKind
from understudy.launch.kubernetes.pod_security import SECURITY, container, volumes
from understudy.launch.kubernetes.quantities import amount
from understudy.launch.kubernetes.settings import VIEW, Cluster, Pool, affinity, requests
from understudy.recipe import Resources

CACHE = "/var/cache/understudy"  # where the nodes' own volume lies
GROUP = 1000  # of the images, and of the store
GONE_NODE = 30  # seconds until a pod gives up on a node that does not answer


def command(spec: JobSpec) -> list[str]:
    """What starts the ranks on one node."""
    return ["python", "-m", "understudy.agent.node", str(spec.path)]


def pod_template(
    kind: JobKind, spec: JobSpec, identity: Identity, resources: Resources, cluster: Cluster
) -> dict[str, Any]:
    """The pod of one node.

    Raises:
        InputError: the recipe names a pool that this cluster does not have.
    """
    pool = cluster.pool(resources, spec.section)
    wanted = affinity(cluster, pool, near={KEY: identity.labels[KEY]})
    others: dict[str, Any] = {"shm": {"emptyDir": {"medium": "Memory", "sizeLimit": resources.shared_memory}}}
    if cluster.cache:
        others["cache"] = cluster.cache
    return {
        "metadata": {"labels": identity.labels | cluster.neighbours},
        "spec": {
            "serviceAccountName": cluster.service_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": resources.termination_grace_period,
            "securityContext": {**SECURITY, **ownership(cluster)},
            **({"priorityClassName": resources.priority} if resources.priority else {}),
            **({"affinity": wanted} if wanted else {}),
            "nodeSelector": pool.node_selector,
            "tolerations": [*pool.tolerations, *_gone("not-ready"), *_gone("unreachable")],
            "containers": [_container(kind, spec, resources, cluster, pool)],
            "volumes": volumes(cluster, others),
        },
    }


def _container(kind: JobKind, spec: JobSpec, resources: Resources, cluster: Cluster, pool: Pool) -> dict[str, Any]:
    asked = dict(requests(resources, pool))
    limits = {name: value for name, value in asked.items() if name != "cpu"}
    mounts = {"shm": "/dev/shm", **({"cache": CACHE} if cluster.cache else {})}
    made = container(kind.container, cluster, command(spec), mounts)
    return {
        **made,
        "volumeMounts": [*made["volumeMounts"], {"name": "store", "mountPath": VIEW, "readOnly": True}],
        "env": _environment(spec, cluster),
        "resources": {"requests": asked, "limits": limits},
    }


def ownership(cluster: Cluster) -> dict[str, Any]:
    """A new disk is root's; ranks write to it as the images' group. An emptyDir is everybody's."""
    if not cluster.cache or "emptyDir" in cluster.cache:
        return {}
    return {"fsGroup": GROUP, "fsGroupChangePolicy": "OnRootMismatch"}


def _cache(cluster: Cluster) -> dict[str, str]:
    """What a node's agent has to know of its cache."""
    if not cluster.cache:
        return {}
    limit = cluster.cache.get("emptyDir", {}).get("sizeLimit")
    return {node_cache.CACHE: CACHE, **({node_cache.LIMIT: str(int(amount(str(limit))))} if limit else {})}


def _gone(what: str) -> list[dict[str, Any]]:
    """For how long a pod stays on a node that does not answer."""
    key = f"node.kubernetes.io/{what}"
    return [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": GONE_NODE}]


def _environment(spec: JobSpec, cluster: Cluster) -> list[dict[str, Any]]:
    values = {
        "OMP_NUM_THREADS": str(spec.threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",  # what has to be fetched was fetched by the step, once
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/tmp",
        logs.VARIABLE: os.environ.get(logs.VARIABLE, "text"),  # a job logs as its launcher does
        **cluster.environment,
        node_cache.READ_ONLY: f"{cluster.mount}:{VIEW}",
        **_cache(cluster),
    }
    node = {"name": "UNDERSTUDY_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return [*({"name": name, "value": value} for name, value in values.items()), node]
