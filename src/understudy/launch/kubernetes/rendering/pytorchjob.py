"""The manifest of a PyTorchJob of the Kubeflow Training Operator (kubeflow.org/v1).

A job has workers only and an elasticPolicy: with a master, the operator adds an init container to the workers, which
Pod Security `restricted` rejects. The operator then reports a success as soon as one worker succeeds: the launcher
decides on the verdict, see controller.py.
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

RETENTION = 24 * 3600  # seconds that a finished job is kept, for inspection


def render(
    spec: JobSpec,
    identity: Identity,
    resources: Resources,
    cluster: Cluster,
    owner: OwnerReference | None,
    task: TaskConfig = NOTHING,
) -> KubernetesObject:
    """The manifest of a PyTorchJob.

    Args:
        spec: the job; its folder is on the claim.
        identity: the job's name and labels.
        resources: the job's resources in the recipe.
        cluster: the cluster's settings.
        owner: an owner reference; the job is deleted with this object.
        task: settings of the task that launches it.

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
        # The operator derives the rendezvous endpoint (PET_RDZV_ENDPOINT) from this: the first worker's pod hosts it.
        elastic_policy=KubeflowOrgV1ElasticPolicy(
            rdzv_backend="c10d",
            rdzv_id=identity.name,
            min_replicas=spec.min_nodes,
            max_replicas=spec.nodes,
            max_restarts=0,
            n_proc_per_node=spec.processes,
        ),
        run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="All", ttl_seconds_after_finished=RETENTION),
        pytorch_replica_specs={
            "Worker": KubeflowOrgV1ReplicaSpec(replicas=spec.nodes, restart_policy="ExitCode", template=template)
        },
    )
