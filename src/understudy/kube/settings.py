"""Where a cluster's jobs run: its node pools, image, claim and queue, defined in one file that every step reads.

The file is a ConfigMap in the cluster, mounted where UNDERSTUDY_CLUSTER points; manifests/settings has some.
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
"""A ConfigMap with certificates of one's own, such as a proxy's, and where the pods that fetch have it."""
SECRETS = {
    "understudy-mlflow": ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"),
    "understudy-hub": ("HF_TOKEN",),
    "understudy-s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
}
"""Secrets that a namespace may have, and their keys: variables of the steps, which ranks never see."""
SETTINGS = "UNDERSTUDY_CLUSTER"
LAUNCHER = "UNDERSTUDY_LAUNCHER"
"""Who runs jobs, as launch/platform.py reads it; not set on one machine."""
RUN_ID = "UNDERSTUDY_RUN_ID"
"""The run that a driver's pod stands for."""
CACHES = {"csi", "emptyDir", "ephemeral", "persistentVolumeClaim"}
HOST = "kubernetes.io/hostname"
STORE = "understudy.store"  # the label of pods that mount the store
SIZE = re.compile(r"[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?")

RENAMED = {"patience": "launcher_timeout"}
"""Settings of version 0.1 that have another name now."""


class Settings(BaseModel):
    """A part of the cluster's settings: frozen, and nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Pool(Settings):
    """Nodes of one kind, and how a pod gets there."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity | None = None
    gpu: str | None = None
    """The resource that counts its GPUs, such as nvidia.com/gpu; a process gets one of them."""
    topology: str | None = None
    """The node label of a rack or block; pods of a job are packed into one where that is possible."""
    pod_patch: PodPatch = {}
    """What its jobs' pods need besides: annotations, resources of a fabric, volumes, a runtime class."""

    @model_validator(mode="before")
    @classmethod
    def _check_patch(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and isinstance(values.get("pod_patch"), Mapping):
            try:
                pod_patch.check(values["pod_patch"], values.get("gpu"))
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"pod_patch: is no part of a pod's template ({error!r})") from error
            except ValueError as error:
                raise ValueError(f"pod_patch.{error}") from error
        return values


ANYWHERE = Pool()
"""Any node that nothing keeps a pod away from."""


class Cluster(Settings):
    """What jobs need to know about the cluster that they run in."""

    image: str
    """The trainer's."""
    launcher: Literal["pytorchjob", "trainjob"] = "pytorchjob"
    """The operator that runs jobs: the Kubeflow Training Operator, or Kubeflow Trainer."""
    claim: str
    """The ReadWriteMany claim that holds the store; ReadWriteOnce will do for one_node."""
    one_node: bool = False
    """All pods that mount the claim run on one node, since no storage class gives it to several."""
    mount: Annotated[str, Field(pattern="^/")] = "/var/lib/understudy"
    """Where every pod mounts the claim, or folders of it; UNDERSTUDY_HOME of the steps lies below it."""
    service_account: str = "default"
    """Of the ranks, which need no right at all."""
    queue: str | None = None
    """Kueue's LocalQueue for jobs that name none."""
    pools: dict[str, Pool] = {}
    pool: str | None = None
    """The pool of jobs that name none, and of what launches and watches; nodes for CPUs, where GPU nodes are dear."""
    launcher_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds without a launcher after which a job's ranks take a checkpoint and leave."""
    environment: dict[str, str] = {}
    """Variables of every rank. No secret belongs here: it can be read in the job."""
    cache: VolumeSource | None = None
    """A volume on the nodes' own disks, as a pod names it, such as {emptyDir: {sizeLimit: 20Gi}}: what a job's ranks
    read is copied there once per node."""

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
    def _check_cache_of_its_own(self) -> "Cluster":
        claim = ((self.cache or {}).get("persistentVolumeClaim") or {}).get("claimName")
        if claim == self.claim:
            raise ValueError("cache: the store's claim is no cache; ranks may not write to what others read")
        return self

    @field_validator("pools")
    @classmethod
    def _check_patches(cls, value: dict[str, Pool], about: ValidationInfo) -> dict[str, Pool]:
        for name, pool in value.items():
            if not {"claim", "mount"} <= about.data.keys():
                break  # these are wrong themselves
            try:
                pod_patch.check_places(pool.pod_patch, about.data["claim"], about.data["mount"])
            except ValueError as error:
                raise ValueError(f"{name}.pod_patch.{error}") from error
        return value

    @field_validator("pool")
    @classmethod
    def _check_pool(cls, value: str | None, about: ValidationInfo) -> str | None:
        if value is not None and value not in about.data.get("pools", {value: None}):
            raise ValueError(f"there is no pool {value} among pools ({_known(about.data['pools'])})")
        return value

    @property
    def kind(self) -> JobKind:
        """What a job is in this cluster."""
        return KINDS[self.launcher]

    @property
    def store_label(self) -> dict[str, str]:
        """The label of all pods that mount the claim."""
        return {STORE: self.claim[:63]}

    @property
    def default_pool(self) -> Pool:
        """The nodes of what names no pool."""
        return self.pools[self.pool] if self.pool else ANYWHERE

    def queue_of(self, resources: Resources) -> str | None:
        """Kueue's LocalQueue of a job; None when jobs start at once."""
        return resources.queue or self.queue

    def pool_of(self, resources: Resources, where: str) -> Pool:
        """The nodes that a job asks for.

        Raises:
            InputError: there is no such pool.
        """
        if resources.pool is None:
            return self.default_pool
        if resources.pool not in self.pools:
            raise InputError(
                f"{where}.pool: this cluster has no pool {resources.pool!r}, but {_known(self.pools)}; pools are "
                f"defined in cluster.yaml, of the ConfigMap {CONFIG}"
            )
        return self.pools[resources.pool]


def _known(pools: Mapping[str, Pool]) -> str:
    return ", ".join(sorted(pools)) or "none at all"


def affinity(cluster: Cluster, pool: Pool, near: Mapping[str, str]) -> Affinity:
    """Which nodes a pod wants for the sake of its pool and of other pods: those of its job are spread over nodes.

    Args:
        cluster: where it runs.
        pool: its nodes.
        near: labels of its job's pods, whose rack it wants to share.
    """
    wanted = pool.affinity.copy() if pool.affinity else Affinity()
    if near and not cluster.one_node:
        wanted["podAntiAffinity"] = _preferring(wanted.get("podAntiAffinity"), _term(near, HOST))
    if pool.topology and near:
        wanted["podAffinity"] = _preferring(wanted.get("podAffinity"), _term(near, pool.topology))
    if cluster.one_node:  # the first such pod may go anywhere, since it fits its own selector
        pods = wanted.get("podAffinity", PodAffinity()).copy()
        pods[REQUIRED] = [*pods.get(REQUIRED, ()), _term(cluster.store_label, HOST)]
        wanted["podAffinity"] = pods
    return wanted


def _preferring(pods: PodAffinity | None, term: PodAffinityTerm) -> PodAffinity:
    """What a pool says of other pods, and a wish more; the pool's own is left as it is."""
    more = pods.copy() if pods else PodAffinity()
    more[PREFERRED] = [*more.get(PREFERRED, ()), {"weight": 100, "podAffinityTerm": term}]
    return more


def _term(labels: Mapping[str, str], topology: str) -> PodAffinityTerm:
    """Pods with these labels, and which label of a node defines the same place."""
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
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        words = f"it is called {RENAMED[place]} now" if place in RENAMED else first["msg"]
        raise InputError(f"{source}: {place}: {words}") from error


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
    """What one pod of a job asks for."""
    asked = {"cpu": resources.cpu, "memory": resources.memory}
    if pool.gpu and resources.device != "cpu":
        asked[pool.gpu] = str(resources.processes)
    return {name: value for name, value in asked.items() if value}
