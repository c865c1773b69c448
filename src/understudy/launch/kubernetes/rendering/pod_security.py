"""Pods for namespaces that enforce the Pod Security Standard `restricted`: no root, and an image that nobody can write.

Each of them mounts folders of the store, and a /tmp of its own.
"""

from collections.abc import Iterable, Mapping

from understudy.kube.objects import Container, PodSecurityContext, Volume, VolumeMount, VolumeSource
from understudy.kube.settings import Cluster

SECURITY: PodSecurityContext = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def container(name: str, cluster: Cluster, command: list[str], mounts: Iterable[VolumeMount]) -> Container:
    """A container of the trainer's image.

    Args:
        name: the container's.
        cluster: whose image and store.
        command: what it runs.
        mounts: of other volumes than /tmp.
    """
    return {
        "name": name,
        "image": cluster.image,
        "imagePullPolicy": "IfNotPresent",  # tags are never given to another image
        "command": command,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],
    }


def volumes(cluster: Cluster, others: Mapping[str, VolumeSource]) -> list[Volume]:
    """The store, /tmp, and other volumes by their names."""
    ours: dict[str, VolumeSource] = {
        "store": {"persistentVolumeClaim": {"claimName": cluster.claim}},
        "tmp": {"emptyDir": {}},
    }
    return [{"name": name, **source} for name, source in (ours | dict(others)).items()]
