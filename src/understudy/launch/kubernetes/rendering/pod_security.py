"""Pods for namespaces that enforce the Pod Security Standard `restricted`: no root, and an image that nobody can write.

Each of them mounts the store, and a /tmp of its own.
"""

from collections.abc import Mapping

from understudy.kube.objects import Container, PodSecurityContext, Volume, VolumeSource
from understudy.kube.settings import Cluster

SECURITY: PodSecurityContext = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def container(name: str, cluster: Cluster, command: list[str], mounts: Mapping[str, str]) -> Container:
    """A container of the trainer's image.

    Args:
        name: the container's.
        cluster: whose image and store.
        command: what it runs.
        mounts: where other volumes than the store and /tmp lie, by their names.
    """
    everywhere = {"store": cluster.mount, "tmp": "/tmp", **mounts}
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
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in everywhere.items()],
    }


def volumes(cluster: Cluster, others: Mapping[str, VolumeSource]) -> list[Volume]:
    """The store, /tmp, and other volumes by their names."""
    ours: dict[str, VolumeSource] = {
        "store": {"persistentVolumeClaim": {"claimName": cluster.claim}},
        "tmp": {"emptyDir": {}},
    }
    return [{"name": name, **source} for name, source in (ours | dict(others)).items()]
