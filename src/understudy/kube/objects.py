"""Types of Kubernetes objects: the parts of a job's pod, and one alias for objects that are read.

The parts are dictionaries at run time, with Kubernetes' keys: values from a cluster's settings or a KFP task go into
the pod unchanged. A field that is not listed stays if its part is open, and is refused otherwise.
"""

from typing import Any, Final, Literal, NotRequired, Required, TypeAlias

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic accepts typing.TypedDict only from 3.12 on

KubernetesObject: TypeAlias = dict[str, Any]
"""An object from the API server, or a part of one. Its schema is the cluster's: a custom resource, a node or an event
of another version has other fields, and code relies only on those that it names."""

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
    """Name, labels and owners of an object that we create."""

    name: NotRequired[str]
    labels: dict[str, str]
    annotations: NotRequired[dict[str, str]]
    ownerReferences: NotRequired[list[OwnerReference]]


# Scheduling of a pod


@_CLOSED
class Toleration(TypedDict, total=False):
    """A taint of nodes that a pod tolerates."""

    key: str
    operator: str
    value: str
    effect: str
    tolerationSeconds: int


@_OPEN
class PodAffinityTerm(TypedDict, total=False):
    """Other pods, and the node label of the topology."""

    topologyKey: Required[str]
    labelSelector: KubernetesObject


class WeightedPodAffinityTerm(TypedDict):
    """A preferred term, with a weight from 1 to 100."""

    weight: int
    podAffinityTerm: PodAffinityTerm


@_CLOSED
class PodAffinity(TypedDict, total=False):
    """Other pods that a pod is placed near to, or far from."""

    requiredDuringSchedulingIgnoredDuringExecution: list[PodAffinityTerm]
    preferredDuringSchedulingIgnoredDuringExecution: list[WeightedPodAffinityTerm]


@_CLOSED
class Affinity(TypedDict, total=False):
    """A pod's affinity to nodes and other pods."""

    nodeAffinity: KubernetesObject
    podAffinity: PodAffinity
    podAntiAffinity: PodAffinity


# Volumes of a pod


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
    """The source of a volume's files: one of these, or another that is passed through."""

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
    """The path of a volume in a container."""

    name: Required[str]
    mountPath: Required[str]
    readOnly: bool
    subPath: str


# Environment, resources and rights of a container


class FieldRef(TypedDict):
    """A field of the pod itself."""

    fieldPath: str


@_OPEN
class ValueSource(TypedDict, total=False):
    """The source of a variable's value."""

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
    """A container's claim to a device of its pod (dynamic resource allocation)."""

    name: str
    request: NotRequired[str]


class ResourceRequirements(TypedDict):
    """Amounts by the resource's name."""

    requests: dict[str, str]
    limits: dict[str, str]
    claims: NotRequired[list[ContainerClaim]]


class Capabilities(TypedDict):
    """Linux capabilities that a container drops."""

    drop: list[str]


class SecurityContext(TypedDict):
    """Restrictions of a container."""

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
    """The filter of system calls."""

    type: Literal["RuntimeDefault"]


class PodSecurityContext(TypedDict):
    """The user of a pod's processes, and the group of its volumes."""

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
    """The template of all pods of a job."""

    metadata: Metadata
    spec: PodSpec
