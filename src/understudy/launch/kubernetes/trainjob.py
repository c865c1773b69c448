"""A job specification as a TrainJob of Kubeflow Trainer v2.3 (trainer.kubeflow.org/v1alpha1): rendered, not launched.

What of a pod a TrainJob does not set itself is a patch of its runtime's pod template, as the API allows since 2.3.
"""

from typing import Any

from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes.identity import Identity
from understudy.launch.kubernetes.kind import TRAINJOB
from understudy.launch.kubernetes.pod import pod_template
from understudy.launch.kubernetes.settings import Cluster
from understudy.launch.kubernetes.task_config import NOTHING, TaskConfig
from understudy.recipe import Resources

RUNTIME = "torch-distributed"  # the ClusterTrainingRuntime that Trainer brings along
MANAGER = "understudy.dev/launcher"
PATCHED = ("nodeSelector", "tolerations", "affinity", "securityContext", "serviceAccountName", "volumes")
GRACE = "terminationGracePeriodSeconds"


def render(
    spec: JobSpec,
    identity: Identity,
    resources: Resources,
    cluster: Cluster,
    owner: dict[str, Any] | None,
    task: TaskConfig = NOTHING,
) -> dict[str, Any]:
    """The TrainJob, as the API takes it; arguments and errors as of pytorchjob.render()."""
    template = task.merged(pod_template(TRAINJOB, spec, identity, resources, cluster), spec, cluster)
    made = template["spec"]
    container = made["containers"][0]
    patch = {key: made[key] for key in (*PATCHED, GRACE) if key in made}
    patch["containers"] = [
        {"name": "node", "volumeMounts": container["volumeMounts"], "securityContext": container["securityContext"]}
    ]
    job = {"spec": {"template": {"metadata": template["metadata"], "spec": patch}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": identity.metadata(cluster.queue_of(resources), owner),
        "spec": {
            "runtimeRef": {"name": RUNTIME, "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
            "suspend": bool(cluster.queue_of(resources)),
            "trainer": {
                "image": container["image"],
                "command": container["command"],
                "env": container["env"],
                "numNodes": spec.nodes,
                "numProcPerNode": spec.processes,
                "resourcesPerNode": container["resources"],
            },
            "runtimePatches": [_patch({"name": "node", "template": job})],
        },
    }


def _patch(job: dict[str, Any]) -> dict[str, Any]:
    runtime = {"template": {"spec": {"replicatedJobs": [job]}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": runtime}
