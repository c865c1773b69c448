"""Pods for namespaces that enforce the Pod Security Standard `restricted`: no root, and a read-only root file system.

Each pod mounts folders of the store, and a private /tmp.
"""

from collections.abc import Iterable, Mapping

from understudy.kube.objects import Container, PodSecurityContext, Volume, VolumeMount, VolumeSource
from understudy.kube.settings import Cluster

SECURITY: PodSecurityContext = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def container(name: str, cluster: Cluster, command: list[str], mounts: Iterable[VolumeMount]) -> Container:
    """A container of the trainer's image.

    Args:
        name: the container's name.
        cluster: the cluster, for its image.
        command: the command to run.
        mounts: mounts besides /tmp.
    """
    return {
        "name": name,
        "image": cluster.image,
        "imagePullPolicy": "IfNotPresent",  # tags are immutable
        "command": command,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],
    }


def volumes(cluster: Cluster, further_volumes: Mapping[str, VolumeSource]) -> list[Volume]:
    """The store, /tmp, and other volumes by name."""
    own_volumes: dict[str, VolumeSource] = {
        "store": {"persistentVolumeClaim": {"claimName": cluster.claim}},
        "tmp": {"emptyDir": {}},
    }
    return [{"name": name, **source} for name, source in (own_volumes | dict(further_volumes)).items()]
