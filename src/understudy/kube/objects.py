"""Kubernetes objects as the API writes them: the parts that a job's pod is made of, and one name for all that is read.

The parts are dictionaries at run time, with Kubernetes' own keys: what a cluster's settings or a KFP task say about
them goes into the pod as it came. A field that is not listed stays where its part is open, and is refused elsewhere.
"""

from typing import Any, Final, Literal, NotRequired, Required, TypeAlias

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic reads Python's own only from 3.12 on

KubernetesObject: TypeAlias = dict[str, Any]
"""An object, or a part of one, that the API server wrote. Its schema is the cluster's: a custom resource, a node or an
event of another version has other fields, and only those that a reader names are relied on."""

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

_CLOSED = with_config(ConfigDict(extra="forbid"))
_OPEN = with_config(ConfigDict(extra="allow"))


class OwnerReference(TypedDict):
    """The object with which another one is deleted."""

    apiVersion: str
    kind: str
    name: str
    uid: str


class Metadata(TypedDict):
    """What an object of ours is called, and how it is found."""

    name: NotRequired[str]
    labels: dict[str, str]
    annotations: NotRequired[dict[str, str]]
    ownerReferences: NotRequired[list[OwnerReference]]


# Where a pod goes


@_CLOSED
class Toleration(TypedDict, total=False):
    """A taint of nodes that a pod bears."""

    key: str
    operator: str
    value: str
    effect: str
    tolerationSeconds: int


@_OPEN
class PodAffinityTerm(TypedDict, total=False):
    """Other pods, and which label of a node defines the same place."""

    topologyKey: Required[str]
    labelSelector: KubernetesObject


class WeightedPodAffinityTerm(TypedDict):
    """A term that is only preferred; weights go from 1 to 100."""

    weight: int
    podAffinityTerm: PodAffinityTerm


@_CLOSED
class PodAffinity(TypedDict, total=False):
    """Which other pods a pod wants to be near, or far from."""

    requiredDuringSchedulingIgnoredDuringExecution: list[PodAffinityTerm]
    preferredDuringSchedulingIgnoredDuringExecution: list[WeightedPodAffinityTerm]


@_CLOSED
class Affinity(TypedDict, total=False):
    """Where a pod wants to be."""

    nodeAffinity: KubernetesObject
    podAffinity: PodAffinity
    podAntiAffinity: PodAffinity


# What a pod mounts


@_OPEN
class ClaimSource(TypedDict, total=False):
    """A PersistentVolumeClaim as a volume."""

    claimName: str


@_OPEN
class EmptyDir(TypedDict, total=False):
    """A folder that lives as long as its pod."""

    medium: str
    sizeLimit: str | int | None


@_OPEN
class SecretSource(TypedDict, total=False):
    """A Secret as a volume."""

    secretName: str


@_OPEN
class Reference(TypedDict, total=False):
    """A Secret or a ConfigMap, by its name."""

    name: str
    optional: bool


@_OPEN
class ProjectedSource(TypedDict, total=False):
    """Several sources as one volume."""

    sources: list[dict[str, Any]]


@_OPEN
class VolumeSource(TypedDict, total=False):
    """Where a volume's files are: one of these, or a source that only passes through."""

    persistentVolumeClaim: ClaimSource | None
    emptyDir: EmptyDir | None
    secret: SecretSource | None
    configMap: Reference | None
    projected: ProjectedSource | None


@_OPEN
class Volume(VolumeSource):
    """A volume of a pod."""

    name: Required[str]


@_OPEN
class VolumeMount(TypedDict, total=False):
    """Where a volume lies in a container."""

    name: Required[str]
    mountPath: Required[str]
    readOnly: bool
    subPath: str


# What a container is told, and may take


class FieldRef(TypedDict):
    """A field of the pod itself."""

    fieldPath: str


@_OPEN
class ValueSource(TypedDict, total=False):
    """Where a variable's value comes from."""

    fieldRef: FieldRef | None
    secretKeyRef: Reference | None
    configMapKeyRef: Reference | None


@_OPEN
class Variable(TypedDict, total=False):
    """A variable of a container's environment."""

    name: Required[str]
    value: str | None
    valueFrom: ValueSource | None


@_CLOSED
class ContainerClaim(TypedDict):
    """A device of a pod's that a container has (dynamic resource allocation)."""

    name: str
    request: NotRequired[str]


class ResourceRequirements(TypedDict):
    """Amounts by the resource's name."""

    requests: dict[str, str]
    limits: dict[str, str]
    claims: NotRequired[list[ContainerClaim]]


class Capabilities(TypedDict):
    """Linux capabilities that a container gives up."""

    drop: list[str]


class SecurityContext(TypedDict):
    """What a container may not do."""

    allowPrivilegeEscalation: bool
    readOnlyRootFilesystem: bool
    capabilities: Capabilities


class Container(TypedDict):
    """A container of a pod."""

    name: str
    image: str
    imagePullPolicy: str
    command: list[str]
    securityContext: SecurityContext
    volumeMounts: list[VolumeMount]
    env: NotRequired[list[Variable]]
    resources: NotRequired[ResourceRequirements]


# The pod


class SeccompProfile(TypedDict):
    """Which system calls are filtered."""

    type: Literal["RuntimeDefault"]


class PodSecurityContext(TypedDict):
    """Who a pod's processes are, and whose its disks."""

    runAsNonRoot: bool
    seccompProfile: SeccompProfile
    fsGroup: NotRequired[int]
    fsGroupChangePolicy: NotRequired[str]


class PodSpec(TypedDict):
    """The pod of one node of a job."""

    serviceAccountName: str
    automountServiceAccountToken: bool
    enableServiceLinks: bool
    terminationGracePeriodSeconds: int
    securityContext: PodSecurityContext
    priorityClassName: NotRequired[str]
    runtimeClassName: NotRequired[str]
    schedulerName: NotRequired[str]
    imagePullSecrets: NotRequired[list[Reference]]
    resourceClaims: NotRequired[list[KubernetesObject]]
    topologySpreadConstraints: NotRequired[list[KubernetesObject]]
    affinity: NotRequired[Affinity]
    nodeSelector: dict[str, str]
    tolerations: list[Toleration]
    containers: list[Container]
    volumes: list[Volume]


class PodTemplate(TypedDict):
    """What every pod of a job is made from."""

    metadata: Metadata
    spec: PodSpec
