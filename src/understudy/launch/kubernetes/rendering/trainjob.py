"""The manifest of a TrainJob of Kubeflow Trainer 2.1 (trainer.kubeflow.org/v1alpha1), and its limits.

A TrainJob fills in the pod template of our TrainingRuntime, manifests/components/trainer. The Trainer creates a JobSet
from both. Pod fields that a TrainJob lacks are set by the runtime, for all jobs of its namespace; a job that needs
other values is rejected. The runtime also handles failed pods: the job fails, or all pods restart.
"""

from collections.abc import Mapping
from typing import Final, Literal, get_args

from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.kube.api import Kube
from understudy.kube.identity import Identity
from understudy.kube.kind import TRAINJOB
from understudy.kube.objects import Container, KubernetesObject, OwnerReference, PodSpec, PodTemplate, VolumeMount
from understudy.kube.pod_patch import PodPatch
from understudy.kube.settings import Cluster
from understudy.launch.kubernetes.rendering.pod import fs_group, pod_template
from understudy.launch.kubernetes.rendering.task_config import NOTHING, TaskConfig
from understudy.recipe import Resources

RUNTIME = "understudy"
NODE = "node"
"""The runtime's one replicated job: its pods are the job's nodes."""
Overridden = Literal["serviceAccountName", "nodeSelector", "tolerations", "affinity", "imagePullSecrets", "volumes"]
OVERRIDDEN: Final[tuple[Overridden, ...]] = get_args(Overridden)
"""Pod fields that a TrainJob can set, besides those of its container."""
DEFAULT_GRACE = 30  # Kubernetes' own termination grace period, in seconds
ELSE = "or set launcher: pytorchjob in the cluster's settings"


def render(
    spec: JobSpec,
    identity: Identity,
    resources: Resources,
    cluster: Cluster,
    owner: OwnerReference | None,
    task: TaskConfig = NOTHING,
) -> KubernetesObject:
    """The manifest of a TrainJob; arguments and errors as of pytorchjob.render().

    Raises:
        InputError: also if the job is elastic.
    """
    _refuse_elastic(resources, spec.section)
    template = task.merged(pod_template(TRAINJOB, spec, identity, resources, cluster), spec, cluster)
    queue = cluster.queue_of(resources)
    return {
        "apiVersion": TRAINJOB.api_version,
        "kind": TRAINJOB.name,
        "metadata": identity.metadata(queue, owner),
        "spec": {
            "runtimeRef": {"name": RUNTIME, "kind": "TrainingRuntime", "apiGroup": TRAINJOB.group},
            "suspend": queue is not None,
            "trainer": _trainer(spec, template["spec"]["containers"][0]),
            "podTemplateOverrides": _overrides(template),
        },
    }


def _trainer(spec: JobSpec, container: Container) -> KubernetesObject:
    """A TrainJob's nodes, and the container that their ranks run in."""
    return {
        "image": container["image"],
        "command": container["command"],
        "env": container["env"],
        "numNodes": spec.nodes,
        "numProcPerNode": spec.processes,
        "resourcesPerNode": container["resources"],
    }


def _overrides(template: PodTemplate) -> list[KubernetesObject]:
    """Overrides of the runtime's pod, which the Trainer merges one after the other."""
    pod = template["spec"]
    mounts = _once_each(pod["containers"][0]["volumeMounts"])
    fields: dict[str, object] = {field: pod[field] for field in OVERRIDDEN if field in pod}
    first = {**_override(pod, mounts[0], fields), "metadata": template["metadata"]}
    return [first, *(_override(pod, further, {}) for further in mounts[1:])]


def _override(pod: PodSpec, mounts: list[VolumeMount], fields: Mapping[str, object]) -> KubernetesObject:
    containers = [{"name": pod["containers"][0]["name"], "volumeMounts": mounts}]
    return {"targetJobs": [{"name": NODE}], "spec": {**fields, "containers": containers}}


def _once_each(mounts: list[VolumeMount]) -> list[list[VolumeMount]]:
    """Split mounts into lists with each volume once: a list with the store twice was rejected as a duplicate."""
    lists: list[list[VolumeMount]] = [[]]
    for mount in mounts:
        names = [{used["name"] for used in mounts_once} for mounts_once in lists]
        index = next((index for index, used in enumerate(names) if mount["name"] not in used), len(lists))
        lists[index:] = lists[index:] or [[]]
        lists[index].append(mount)
    return lists


def check(kube: Kube, cluster: Cluster, resources: Resources, location: str) -> None:
    """Check that the namespace's runtime meets a job's requirements, before it is submitted.

    Args:
        kube: client of the namespace.
        cluster: the cluster's settings.
        resources: the job's resources in the recipe.
        location: the recipe's section of these resources.

    Raises:
        InputError: there is no runtime, or it does not meet them; the message names the setting and the fix.
    """
    _refuse_elastic(resources, location)
    pod = _runtime_pod(kube)
    if any(mount["name"] == "store" for container in pod["containers"] for mount in container.get("volumeMounts", ())):
        raise InputError(
            f"TrainingRuntime {RUNTIME}: it mounts the whole store, of an earlier version; apply "
            f"manifests/components/trainer of this one, {ELSE}"
        )
    priority, has = resources.priority, pod.get("priorityClassName")
    if priority and priority != has:
        raise InputError(
            f"{location}.priority: {priority}; a TrainJob has the priority of its TrainingRuntime {RUNTIME} "
            f"({has or 'none'}). Patch priorityClassName there, leave the setting out, {ELSE}"
        )
    period, allowed = resources.termination_grace_period, int(pod.get("terminationGracePeriodSeconds", DEFAULT_GRACE))
    if period > allowed:
        raise InputError(
            f"{location}.termination_grace_period: {period}; the TrainingRuntime {RUNTIME} gives a pod {allowed} s. "
            f"Patch terminationGracePeriodSeconds there, take {allowed} or less, {ELSE}"
        )
    _check_patch(pod, cluster.pool_of(resources, location).pod_patch)
    group = fs_group(cluster)
    if group and pod.get("securityContext", {}).get("fsGroup") != group:
        raise InputError(
            f"cache: a volume other than emptyDir needs fsGroup {group} in the pods' securityContext, which the "
            f"TrainingRuntime {RUNTIME} does not set. Patch it there, take an emptyDir, {ELSE}"
        )


def _check_patch(pod: KubernetesObject, patch: PodPatch) -> None:
    """Check that the runtime's pod has the fields of a pool's patch that a TrainJob lacks."""
    for name, value in patch.get("spec", {}).items():
        if name not in (*OVERRIDDEN, "containers") and pod.get(name) != value:
            raise InputError(
                f"pod_patch.spec.{name}: a TrainJob has no field for it, and the TrainingRuntime {RUNTIME} has "
                f"{pod.get(name, 'none')}. Patch it there, leave it out of the pool, {ELSE}"
            )


def _refuse_elastic(resources: Resources, location: str) -> None:
    least = resources.min_nodes
    if least is not None and least < resources.nodes:
        raise InputError(f"{location}.min_nodes: {least}; a TrainJob has a fixed number of nodes. Leave it out, {ELSE}")


def _runtime_pod(kube: Kube) -> KubernetesObject:
    """The pod that the runtime's template describes."""
    runtime = kube.training_runtime(RUNTIME)
    if runtime is None:
        raise InputError(
            f"namespace {kube.namespace}: there is no TrainingRuntime {RUNTIME}, which TrainJobs need. Add "
            f"components/trainer to the overlay and apply it, {ELSE}"
        )
    for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        if job["name"] == NODE:
            pod: KubernetesObject = job["template"]["spec"]["template"]["spec"]
            return pod
    raise InputError(f"TrainingRuntime {RUNTIME}: has no replicated job {NODE}; apply manifests/components/trainer")
