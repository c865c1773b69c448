"""Jobs as an operator gets them, for tests of their contents."""

from typing import Any

from tests.unit.jobs.specs import on_the_claim
from understudy.jobs.specification import JobSpec
from understudy.kube.identity import Identity
from understudy.kube.settings import Cluster, Pool
from understudy.launch.kubernetes.rendering import pytorchjob, trainjob
from understudy.launch.kubernetes.rendering.task_config import NOTHING, TaskConfig
from understudy.recipe import Resources

CLUSTER = Cluster(
    image="registry.example/understudy-trainer:0.1.0",
    claim="store",
    pools={
        "a100": Pool(
            node_selector={"gpu": "a100"},
            tolerations=({"key": "nvidia.com/gpu", "operator": "Exists"},),
            gpu="nvidia.com/gpu",
            topology="topology.kubernetes.io/rack",
        )
    },
)
RUN = Identity("20260101-000000-abc", "teacher", "0123456789abcdef" * 4)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "driver", "uid": "1"}


def pytorch(spec: JobSpec, cluster: Cluster = CLUSTER, task: TaskConfig = NOTHING, **resources: Any) -> dict[str, Any]:
    """A PyTorchJob of three nodes."""
    return pytorchjob.render(
        on_the_claim(spec), RUN, Resources(nodes=3, processes=2, **resources), cluster, OWNER, task
    )


def trainer(spec: JobSpec, cluster: Cluster = CLUSTER, task: TaskConfig = NOTHING, **resources: Any) -> dict[str, Any]:
    """A TrainJob of three nodes."""
    return trainjob.render(on_the_claim(spec), RUN, Resources(nodes=3, processes=2, **resources), cluster, OWNER, task)


def template(job: dict[str, Any]) -> dict[str, Any]:
    """The template of a PyTorchJob's pods."""
    part: dict[str, Any] = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    return part


def pod(job: dict[str, Any]) -> dict[str, Any]:
    """The pod of a PyTorchJob's node."""
    part: dict[str, Any] = template(job)["spec"]
    return part
