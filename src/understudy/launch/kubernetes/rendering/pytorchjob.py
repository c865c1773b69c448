"""A job specification as a PyTorchJob of the Kubeflow Training Operator (kubeflow.org/v1).

A job has workers only and an elasticPolicy, since the init container that the operator gives to the workers of a
master is refused where Pod Security is `restricted`. The operator then calls the job a success as soon as one worker
has ended well: the verdict is the launcher's, see controller.py.
"""

from typing import Any

from kubeflow.training import (
    KubeflowOrgV1ElasticPolicy,
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
)
from kubernetes.client import ApiClient

from understudy.jobs.specification import JobSpec
from understudy.kube.identity import Identity
from understudy.kube.kind import PYTORCHJOB
from understudy.kube.objects import KubernetesObject, OwnerReference, PodTemplate
from understudy.kube.settings import Cluster
from understudy.launch.kubernetes.rendering.pod import pod_template
from understudy.launch.kubernetes.rendering.task_config import NOTHING, TaskConfig
from understudy.recipe import Resources

KEPT = 24 * 3600  # seconds that a finished job is kept, for inspection


def render(
    spec: JobSpec,
    identity: Identity,
    resources: Resources,
    cluster: Cluster,
    owner: OwnerReference | None,
    task: TaskConfig = NOTHING,
) -> KubernetesObject:
    """The PyTorchJob, as the API takes it.

    Args:
        spec: the job; it is on the claim.
        identity: whose job it is.
        resources: what the recipe gives to it.
        cluster: where it runs.
        owner: an owner reference; the job is deleted with this object.
        task: what was set on the task that launches it.

    Raises:
        InputError: the recipe names a pool that this cluster does not have, or the task's settings do not fit the job.
    """
    template = task.merged(pod_template(PYTORCHJOB, spec, identity, resources, cluster), spec, cluster)
    queue = cluster.queue_of(resources)
    job = KubeflowOrgV1PyTorchJob(
        api_version=PYTORCHJOB.api_version,
        kind=PYTORCHJOB.name,
        metadata=identity.metadata(queue, owner),
        spec=_spec(spec, identity, template),
    )
    job.spec.run_policy.suspend = True if queue else None
    return dict(ApiClient().sanitize_for_serialization(job))


def _spec(spec: JobSpec, identity: Identity, template: PodTemplate) -> Any:
    return KubeflowOrgV1PyTorchJobSpec(
        # The operator makes the rendezvous endpoint (PET_RDZV_ENDPOINT) of this: the first worker's pod hosts it.
        elastic_policy=KubeflowOrgV1ElasticPolicy(
            rdzv_backend="c10d",
            rdzv_id=identity.name,
            min_replicas=spec.min_nodes,
            max_replicas=spec.nodes,
            max_restarts=0,
            n_proc_per_node=spec.processes,
        ),
        run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="All", ttl_seconds_after_finished=KEPT),
        pytorch_replica_specs={
            "Worker": KubeflowOrgV1ReplicaSpec(replicas=spec.nodes, restart_policy="ExitCode", template=template)
        },
    )
