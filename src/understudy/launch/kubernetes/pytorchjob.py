"""A job specification as a PyTorchJob of the Kubeflow Training Operator (kubeflow.org/v1).

A job has workers only and an elasticPolicy, since the init container that the operator gives to the workers of a
master is refused where Pod Security is `restricted`. The operator then calls the job a success as soon as one worker
has ended well: the verdict is the launcher's, see rules/ending.py.
"""

from dataclasses import dataclass
from typing import Any

from kubeflow.training import (
    KubeflowOrgV1ElasticPolicy,
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
)
from kubernetes.client import ApiClient

from understudy.agent import node_cache
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes.pod_security import SECURITY, container, volumes
from understudy.launch.kubernetes.quantities import amount
from understudy.launch.kubernetes.settings import VIEW, Cluster, Pool, affinity, requests
from understudy.launch.kubernetes.task_config import NOTHING, TaskConfig
from understudy.recipe import Resources

KEPT = 24 * 3600  # seconds that a finished job stays, for whoever wants to look at it
CACHE = "/var/cache/understudy"  # where the nodes' own volume lies
GROUP = 1000  # of the images, and of the store
GONE_NODE = 30  # seconds until a pod gives up on a node that does not answer
PARTS = {"app.kubernetes.io/name": "understudy", "app.kubernetes.io/component": "training"}
RUN, STEP, KEY = "understudy.run", "understudy.step", "understudy.key"


@dataclass(frozen=True)
class Identity:
    """Which job this is: a step of a run, and the key of the work that it does."""

    run: str
    step: str
    key: str

    @property
    def name(self) -> str:
        """The object's name: the same for whoever starts this step of this run, and for nobody else (DNS-1035)."""
        from understudy.store.files import sha256

        return f"{self.step}-{self.key[:10]}-{sha256(self.run.encode())[:8]}"

    @property
    def labels(self) -> dict[str, str]:
        """By these it is found."""
        return {**PARTS, RUN: self.run[:63], STEP: self.step, KEY: self.key[:40]}


def render(
    spec: JobSpec,
    identity: Identity,
    resources: Resources,
    cluster: Cluster,
    owner: dict[str, Any] | None,
    task: TaskConfig = NOTHING,
) -> dict[str, Any]:
    """The PyTorchJob, as the API takes it.

    Args:
        spec: the job; it lies on the claim.
        identity: whose job it is.
        resources: what the recipe gives to it.
        cluster: where it runs.
        owner: an owner reference; the job goes when this object goes.
        task: what was set on the task that launches it.

    Raises:
        InputError: the recipe names a pool that this cluster does not have, or the task's settings do not fit the job.
    """
    job = KubeflowOrgV1PyTorchJob(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=metadata(identity, resources, cluster, owner),
        spec=_spec(spec, identity, task.merged(pod(spec, identity, resources, cluster), spec, cluster)),
    )
    job.spec.run_policy.suspend = True if resources.queue or cluster.queue else None
    return dict(ApiClient().sanitize_for_serialization(job))


def metadata(
    identity: Identity, resources: Resources, cluster: Cluster, owner: dict[str, Any] | None
) -> dict[str, Any]:
    """A job's name, labels (by which Kueue knows its queue) and owner."""
    queue = resources.queue or cluster.queue
    labels = identity.labels | ({"kueue.x-k8s.io/queue-name": queue} if queue else {})
    return {"name": identity.name, "labels": labels, "ownerReferences": [owner] if owner else []}


def _spec(spec: JobSpec, identity: Identity, template: dict[str, Any]) -> Any:
    return KubeflowOrgV1PyTorchJobSpec(
        elastic_policy=KubeflowOrgV1ElasticPolicy(
            rdzv_backend="c10d",
            rdzv_id=identity.name,
            min_replicas=spec.least,
            max_replicas=spec.nodes,
            max_restarts=0,
            n_proc_per_node=spec.processes,
        ),
        run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="All", ttl_seconds_after_finished=KEPT),
        pytorch_replica_specs={
            "Worker": KubeflowOrgV1ReplicaSpec(replicas=spec.nodes, restart_policy="ExitCode", template=template)
        },
    )


def command(spec: JobSpec) -> list[str]:
    """What starts the ranks on one node."""
    return ["python", "-m", "understudy.launch.local.torchrun", str(spec.path)]


def pod(spec: JobSpec, identity: Identity, resources: Resources, cluster: Cluster) -> dict[str, Any]:
    """The pod of one node."""
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
            "securityContext": {**SECURITY, **_ownership(cluster)},
            **({"priorityClassName": resources.priority} if resources.priority else {}),
            **({"affinity": wanted} if wanted else {}),
            "nodeSelector": pool.node_selector,
            "tolerations": [*pool.tolerations, *_gone("not-ready"), *_gone("unreachable")],
            "containers": [_container(spec, resources, cluster, pool)],
            "volumes": volumes(cluster, others),
        },
    }


def _container(spec: JobSpec, resources: Resources, cluster: Cluster, pool: Pool) -> dict[str, Any]:
    asked = dict(requests(resources, pool))
    limits = {name: value for name, value in asked.items() if name != "cpu"}
    mounts = {"shm": "/dev/shm", **({"cache": CACHE} if cluster.cache else {})}
    made = container("pytorch", cluster, command(spec), mounts)  # the operator looks for this name
    return {
        **made,
        "volumeMounts": [*made["volumeMounts"], {"name": "store", "mountPath": VIEW, "readOnly": True}],
        "env": _environment(spec, cluster),
        "resources": {"requests": asked, "limits": limits},
    }


def _ownership(cluster: Cluster) -> dict[str, Any]:
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
        **cluster.environment,
        node_cache.READ_ONLY: f"{cluster.mount}:{VIEW}",
        **_cache(cluster),
    }
    node = {"name": "UNDERSTUDY_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return [*({"name": name, "value": value} for name, value in values.items()), node]
