"""A cluster's settings for jobs: its node pools, image, claim and queue, in one file that every step reads.

The file is a ConfigMap in the cluster, mounted where UNDERSTUDY_CLUSTER points; manifests/settings has examples.
"""

import os
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from understudy.errors import InputError
from understudy.kube import pod_patch
from understudy.kube.kind import KINDS, JobKind
from understudy.kube.objects import (
    PREFERRED,
    REQUIRED,
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    VolumeSource,
)
from understudy.kube.pod_patch import PodPatch
from understudy.recipe import Resources

CONFIG = "understudy"  # the ConfigMap with cluster.yaml; ENVIRONMENT has the steps' environment
ENVIRONMENT = f"{CONFIG}-environment"
FETCHING = f"{CONFIG}-fetching"  # the ConfigMap with PROXY for the pods that fetch
PROXY = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "HF_ENDPOINT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
CERTIFICATES, CERTIFICATES_FOLDER = f"{CONFIG}-certificates", "/etc/understudy-certificates"
"""A ConfigMap with additional certificates, such as a proxy's, and its folder in the pods that fetch."""
SECRETS = {
    "understudy-mlflow": ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"),
    "understudy-hub": ("HF_TOKEN",),
    "understudy-s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
}
"""Secrets that a namespace may have, and their keys: variables of the steps, which ranks never see."""
SETTINGS = "UNDERSTUDY_CLUSTER"
LAUNCHER = "UNDERSTUDY_LAUNCHER"
"""The variable with the launcher, as launch/platform.py reads it; not set on one machine."""
RUN_ID = "UNDERSTUDY_RUN_ID"
"""The run that a driver's pod stands for."""
CACHES = {"csi", "emptyDir", "ephemeral", "persistentVolumeClaim"}
HOST = "kubernetes.io/hostname"
STORE = "understudy.store"  # the label of pods that mount the store
SIZE = re.compile(r"[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?")

RENAMED = {"patience": "launcher_timeout"}
"""Settings of version 0.1 that were renamed."""


class Settings(BaseModel):
    """A part of the cluster's settings: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Pool(Settings):
    """Nodes of one kind, and the scheduling of pods on them."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity | None = None
    gpu: str | None = None
    """The resource that counts its GPUs, such as nvidia.com/gpu; a process gets one of them."""
    topology: str | None = None
    """The node label of a rack or block; pods of a job are packed into one if possible."""
    pod_patch: PodPatch = {}
    """Additions to its jobs' pods: annotations, resources of a fabric, volumes, a runtime class."""

    @model_validator(mode="before")
    @classmethod
    def _check_patch(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and isinstance(values.get("pod_patch"), Mapping):
            try:
                pod_patch.check(values["pod_patch"], values.get("gpu"))
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"pod_patch: is not part of a pod template ({error!r})") from error
            except ValueError as error:
                raise ValueError(f"pod_patch.{error}") from error
        return values


ANYWHERE = Pool()
"""Any node without taints."""


class Cluster(Settings):
    """The settings of a cluster for the jobs in it."""

    image: str
    """The trainer's image."""
    launcher: Literal["pytorchjob", "trainjob"] = "pytorchjob"
    """The operator that runs jobs: the Kubeflow Training Operator, or Kubeflow Trainer."""
    claim: str
    """The ReadWriteMany claim of the store; ReadWriteOnce suffices for one_node."""
    one_node: bool = False
    """Run all pods that mount the claim on one node, since no storage class shares it between several."""
    mount: Annotated[str, Field(pattern="^/")] = "/var/lib/understudy"
    """The path at which every pod mounts the claim, or folders of it; the steps' UNDERSTUDY_HOME is below it."""
    service_account: str = "default"
    """Of the ranks, which need no rights."""
    queue: str | None = None
    """Kueue's LocalQueue for jobs that name none."""
    pools: dict[str, Pool] = {}
    pool: str | None = None
    """The pool of jobs that name none, and of the pods that launch and watch; CPU nodes, if GPU nodes are expensive."""
    launcher_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds without a launcher after which a job's ranks write a checkpoint and exit."""
    environment: dict[str, str] = {}
    """Environment variables of every rank. Not for secrets: the job shows them."""
    cache: VolumeSource | None = None
    """A volume source on the nodes' disks, such as {emptyDir: {sizeLimit: 20Gi}}: the inputs of a job's ranks are
    copied there once per node."""

    @field_validator("mount")
    @classmethod
    def _check_mount(cls, value: str) -> str:
        path = "/" + posixpath.normpath(value).strip("/")
        if path == "/":
            raise ValueError("a folder below /: the image lies there")
        return path

    @field_validator("cache")
    @classmethod
    def _check_cache(cls, value: VolumeSource | None) -> VolumeSource | None:
        if value is None:
            return None
        if len(value) != 1 or not value.keys() <= CACHES:
            raise ValueError(f"give one of {', '.join(sorted(CACHES))}; Pod Security restricted allows no hostPath")
        folder = value.get("emptyDir")
        if folder is not None and not SIZE.fullmatch(str(folder.get("sizeLimit", ""))):
            raise ValueError("emptyDir needs a sizeLimit such as 20Gi, or it could fill the node's disk")
        return value

    @model_validator(mode="after")
    def _check_cache_folder(self) -> "Cluster":
        claim = ((self.cache or {}).get("persistentVolumeClaim") or {}).get("claimName")
        if claim == self.claim:
            raise ValueError(
                "cache: the store's claim cannot be the cache: ranks must not write to a volume that others read"
            )
        return self

    @field_validator("pools")
    @classmethod
    def _check_patches(cls, value: dict[str, Pool], about: ValidationInfo) -> dict[str, Pool]:
        for name, pool in value.items():
            if not {"claim", "mount"} <= about.data.keys():
                break  # these are invalid themselves
            try:
                pod_patch.check_mounts(pool.pod_patch, about.data["claim"], about.data["mount"])
            except ValueError as error:
                raise ValueError(f"{name}.pod_patch.{error}") from error
        return value

    @field_validator("pool")
    @classmethod
    def _check_pool(cls, value: str | None, about: ValidationInfo) -> str | None:
        if value is not None and value not in about.data.get("pools", {value: None}):
            raise ValueError(f"there is no pool {value} among pools ({_pool_names(about.data['pools'])})")
        return value

    @property
    def kind(self) -> JobKind:
        """The kind of object that runs a job in this cluster."""
        return KINDS[self.launcher]

    @property
    def store_label(self) -> dict[str, str]:
        """The label of all pods that mount the claim."""
        return {STORE: self.claim[:63]}

    @property
    def default_pool(self) -> Pool:
        """The pool of jobs that name none."""
        return self.pools[self.pool] if self.pool else ANYWHERE

    def queue_of(self, resources: Resources) -> str | None:
        """Kueue's LocalQueue of a job; None when jobs start at once."""
        return resources.queue or self.queue

    def pool_of(self, resources: Resources, path: str) -> Pool:
        """The pool that a job names, or the default pool.

        Raises:
            InputError: there is no such pool.
        """
        if resources.pool is None:
            return self.default_pool
        if resources.pool not in self.pools:
            raise InputError(
                f"{path}.pool: this cluster has no pool {resources.pool!r} (it has {_pool_names(self.pools)}); pools "
                f"are defined in cluster.yaml, of the ConfigMap {CONFIG}"
            )
        return self.pools[resources.pool]


def _pool_names(pools: Mapping[str, Pool]) -> str:
    return ", ".join(sorted(pools)) or "none at all"


def affinity(cluster: Cluster, pool: Pool, near: Mapping[str, str]) -> Affinity:
    """A pod's affinity to nodes of its pool and to other pods: those of its job are spread over nodes.

    Args:
        cluster: of the pod.
        pool: of the pod.
        near: labels of its job's pods, preferably in the same rack.
    """
    merged = pool.affinity.copy() if pool.affinity else Affinity()
    if near and not cluster.one_node:
        merged["podAntiAffinity"] = _preferring(merged.get("podAntiAffinity"), _term(near, HOST))
    if pool.topology and near:
        merged["podAffinity"] = _preferring(merged.get("podAffinity"), _term(near, pool.topology))
    if cluster.one_node:  # the first such pod may go anywhere, since it fits its own selector
        pods = merged.get("podAffinity", PodAffinity()).copy()
        pods[REQUIRED] = [*pods.get(REQUIRED, ()), _term(cluster.store_label, HOST)]
        merged["podAffinity"] = pods
    return merged


def _preferring(pods: PodAffinity | None, term: PodAffinityTerm) -> PodAffinity:
    """A copy of a pool's affinity to other pods, with one more preferred term."""
    more = pods.copy() if pods else PodAffinity()
    more[PREFERRED] = [*more.get(PREFERRED, ()), {"weight": 100, "podAffinityTerm": term}]
    return more


def _term(labels: Mapping[str, str], topology: str) -> PodAffinityTerm:
    """A term for pods with these labels, and the node label of the topology."""
    return {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": topology}


def parsed(values: Any, source: str) -> Cluster:
    """The cluster's settings.

    Raises:
        InputError: a value is missing, unknown or wrong.
    """
    try:
        return Cluster.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        message = f"it was renamed to {RENAMED[field]} now" if field in RENAMED else first["msg"]
        raise InputError(f"{source}: {field}: {message}") from error


def read(text: str, source: str) -> Cluster:
    """The cluster's settings, from YAML.

    Raises:
        InputError: it is not YAML, or a value is missing, unknown or wrong.
    """
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{source}: is not YAML: {error}") from error
    return parsed(values, source)


@cache
def cluster_settings() -> Cluster:
    """The settings of the cluster that this process runs in.

    Raises:
        InputError: there are none, or they are wrong.
    """
    source = os.environ.get(SETTINGS)
    if source is None:
        raise InputError(f"{SETTINGS} is not set: it names the file that describes the cluster's pools")
    try:
        text = Path(source).read_text()
    except OSError as error:
        raise InputError(f"{source}: cannot be read as the cluster's settings: {error}") from error
    return read(text, source)


def requests(resources: Resources, pool: Pool) -> Mapping[str, str]:
    """The resource requests of one pod of a job."""
    amounts = {"cpu": resources.cpu, "memory": resources.memory}
    if pool.gpu and resources.device != "cpu":
        amounts[pool.gpu] = str(resources.processes)
    return {name: value for name, value in amounts.items() if value}
