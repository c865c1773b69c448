"""Pod patches: additions of a pool to its jobs' pods, for a fabric or a platform, that weaken no protection.

A patch is a part of a pod's template, merged as Kubernetes merges: containers and volumes by their names. It only adds.
Fields are on an allowlist: a patch must not give its author a token, a Secret, files of another job, or a way past the
network policies.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Any, Required

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from understudy.kube.kind import KINDS
from understudy.kube.objects import ContainerClaim, KubernetesObject, Reference, Variable, Volume, VolumeMount

_CLOSED = with_config(ConfigDict(extra="forbid"))

CONTAINERS = {kind.container for kind in KINDS.values()}
"""Names of the ranks' container, one for each operator; a patch may use either."""
OWN_VOLUMES = {"store", "tmp", "shm", "cache"}
RESERVED_PATHS = ("/tmp", "/dev/shm", "/var/cache/understudy")
OWN_LABELS = re.compile(
    r"(app\.kubernetes\.io|training\.kubeflow\.org|trainer\.kubeflow\.org|jobset\.sigs\.k8s\.io|batch\.kubernetes\.io)/"
    r"|understudy\.|(controller-uid|job-name|kueue\.x-k8s\.io/queue-name|sidecar\.istio\.io/inject)$"
)
"""Labels by which jobs, their pods and the network policies find each other."""
OWN_VARIABLES = re.compile(
    r"(UNDERSTUDY|MLFLOW|PET)_|(HOME|PATH|PYTHONPATH|PYTHONDONTWRITEBYTECODE|LD_PRELOAD|LD_LIBRARY_PATH|OMP_NUM_THREADS"
    r"|TOKENIZERS_PARALLELISM|HF_HUB_OFFLINE)$"
)
UNSAFE_NOTES = re.compile(r"(container\.apparmor\.security\.beta|seccomp\.security\.alpha)\.kubernetes\.io/")
SOURCES = {"configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"}
"""Allowed sources of volumes; any other could be a token, a Secret, or the node's files."""
ELSEWHERE = {
    "nodeSelector": "write it as node_selector of the pool",
    "tolerations": "write it as tolerations of the pool",
    "affinity": "write it as affinity of the pool",
    "priorityClassName": "it is resources.<job>.priority of a recipe",
    "terminationGracePeriodSeconds": "it is resources.<job>.termination_grace_period of a recipe",
    "image": "it is image of these settings",
    "securityContext": "it is the same for all ranks, as Pod Security restricted requires; raise limits such as "
    "memlock in the node's container runtime",
    "hostNetwork": "network policies do not see the host's network; attach an interface by an annotation (Multus), "
    "or a device by its resource",
    "initContainers": "an annotation of your mesh or fabric may inject one",
}


@_CLOSED
class MetadataPatch(TypedDict, total=False):
    """Metadata of a pod for a network plugin, a queue or a mesh."""

    annotations: dict[str, str]
    labels: dict[str, str]


@_CLOSED
class ResourcesPatch(TypedDict, total=False):
    """Amounts by the resource's name, and devices."""

    requests: dict[str, str]
    limits: dict[str, str]
    claims: list[ContainerClaim]


@_CLOSED
class ContainerPatch(TypedDict, total=False):
    """A patch of the ranks' container."""

    name: Required[str]
    env: list[Variable]
    resources: ResourcesPatch
    volumeMounts: list[VolumeMount]


@_CLOSED
class PodSpecPatch(TypedDict, total=False):
    """A patch of the pod's spec. Its scheduling is in other keys of the pool."""

    runtimeClassName: str
    schedulerName: str
    imagePullSecrets: list[Reference]
    resourceClaims: list[KubernetesObject]
    topologySpreadConstraints: list[KubernetesObject]
    volumes: list[Volume]
    containers: list[ContainerPatch]


@_CLOSED
class PodPatch(TypedDict, total=False):
    """A part of a pod's template."""

    metadata: MetadataPatch
    spec: PodSpecPatch


def check(patch: Mapping[str, Any], gpu: str | None) -> None:
    """Refuse fields that a pool may not set, before the rest of the pool is validated.

    Args:
        patch: as it was written.
        gpu: the resource that counts the pool's GPUs.

    Raises:
        ValueError: the message names the field, the reason and the fix.
    """
    _only(patch, PodPatch, "")
    _check_metadata(_mapping(patch, "metadata", ""))
    spec = _mapping(patch, "spec", "")
    _only(spec, PodSpecPatch, "spec.")
    for volume in spec.get("volumes") or ():
        _check_volume(volume)
    for container in spec.get("containers") or ():
        _check_container(container, {volume["name"] for volume in spec.get("volumes") or ()}, gpu)


def check_mounts(patch: PodPatch, claim: str, mount: str) -> None:
    """Refuse another way to the store, or a mount that hides it.

    Args:
        patch: accepted by check().
        claim: the store's.
        mount: its mount path.

    Raises:
        ValueError: the message names the field and the fix.
    """
    spec = patch.get("spec", {})
    for volume in spec.get("volumes", ()):
        if (volume.get("persistentVolumeClaim") or {}).get("claimName") == claim:
            raise ValueError(f"spec.volumes.{volume['name']}: ranks may mount only their folders of the store's claim")
    for mounted in (
        volume_mount for container in spec.get("containers", ()) for volume_mount in container.get("volumeMounts", ())
    ):
        path = posixpath.normpath(f"/{mounted['mountPath'].lstrip('/')}").rstrip("/")
        if any(
            f"{reserved}/".startswith(f"{path}/") or path.startswith(f"{reserved}/")
            for reserved in (mount, *RESERVED_PATHS)
        ):
            raise ValueError(
                f"spec.containers.volumeMounts: {path} is or hides a path that every rank uses; take another"
            )


def _only(values: Mapping[str, Any], part: Any, location: str) -> None:
    allowed = part.__annotations__.keys()
    for name in values.keys() - allowed:
        reason = ELSEWHERE.get(name, f"a pool may set {', '.join(sorted(allowed))}; all else is the same in every pool")
        raise ValueError(f"{location}{name}: a pool cannot set it: {reason}")


def _mapping(values: Mapping[str, Any], name: str, location: str) -> Mapping[str, Any]:
    value = values.get(name, {})
    if not isinstance(value, Mapping):
        raise ValueError(f"{location}{name}: expected a mapping")
    return value


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    _only(metadata, MetadataPatch, "metadata.")
    for name in _mapping(metadata, "labels", "metadata."):
        if OWN_LABELS.match(name):
            raise ValueError(f"metadata.labels.{name}: jobs and network policies select by it; leave it out")
    for name in _mapping(metadata, "annotations", "metadata."):
        if UNSAFE_NOTES.match(name):
            raise ValueError(f"metadata.annotations.{name}: ranks keep the node's default profile; leave it out")


def _check_volume(volume: Volume) -> None:
    location = f"spec.volumes.{volume['name']}"
    if volume["name"] in OWN_VOLUMES:
        raise ValueError(f"{location}: every rank's pod has a volume of this name; choose another")
    for source in volume.keys() - {"name"} - SOURCES:
        raise ValueError(
            f"{location}.{source}: could hold credentials, or the node's files; take one of {_listed(SOURCES)}"
        )
    if (volume.get("configMap") or {}).get("name", "").startswith("understudy"):
        raise ValueError(f"{location}.configMap: only launchers may read it; use another")
    ephemeral: Any = volume.get("ephemeral") or {}
    if {"dataSource", "dataSourceRef"} & ephemeral.get("volumeClaimTemplate", {}).get("spec", {}).keys():
        raise ValueError(f"{location}.ephemeral: must not copy another claim; leave out dataSource and dataSourceRef")
    _check_fields(volume, "V1Volume", location)


def _check_container(container: Mapping[str, Any], volumes: Iterable[str], gpu: str | None) -> None:
    location = "spec.containers"
    if container.get("name") not in CONTAINERS:
        raise ValueError(f"{location}: the only container is the ranks'; name it {' or '.join(sorted(CONTAINERS))}")
    _only(container, ContainerPatch, f"{location}.")
    for variable in container.get("env") or ():
        _check_variable(variable, f"{location}.env.{variable['name']}")
    for mount in container.get("volumeMounts") or ():
        if mount["name"] not in volumes:
            raise ValueError(
                f"{location}.volumeMounts: {mount['name']} is not a volume of this patch; add it to spec.volumes"
            )
        _check_fields(mount, "V1VolumeMount", f"{location}.volumeMounts")
    resources = _mapping(container, "resources", f"{location}.")
    for name in [name for part in ("requests", "limits") for name in resources.get(part) or ()]:
        if name in ("cpu", "memory", gpu):
            raise ValueError(f"{location}.resources: {name} is set in a recipe (resources.<job>); leave it out")


def _check_variable(variable: Variable, location: str) -> None:
    if OWN_VARIABLES.match(variable["name"]):
        raise ValueError(f"{location}: determines the command of ranks or the job that they join; leave it out")
    source = variable.get("valueFrom") or {}
    if source.keys() - {"fieldRef", "resourceFieldRef"}:
        raise ValueError(f"{location}: ranks may not read Secrets or launchers' settings; write the value itself")


def _check_fields(value: Any, kind: str, location: str) -> None:
    """Refuse a field that the Kubernetes type does not have: the API server would drop it silently."""
    from kubernetes import client

    if kind.startswith("list["):
        for item in value or ():
            _check_fields(item, kind.removeprefix("list[").removesuffix("]"), location)
    if not kind.startswith("V1") or not isinstance(value, Mapping):
        return
    model = getattr(client, kind)
    types = {model.attribute_map[name]: type_name for name, type_name in model.openapi_types.items()}
    for name, inner in value.items():
        if name not in types:
            raise ValueError(f"{location}.{name}: Kubernetes has no such field here")
        _check_fields(inner, types[name], f"{location}.{name}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
