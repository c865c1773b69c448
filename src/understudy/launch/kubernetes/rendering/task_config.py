"""Settings of the KFP task that launches a job, applied to the job's pods: GPUs, a node selector, volumes.

The task's pod is small and only launches. KFP passes the settings (kfp.dsl.TaskConfig) to the step as JSON in the
environment. They decide where and with which resources a job runs; a step's key depends only on whether it has GPUs.
"""

import json
import os
import posixpath
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.kube.objects import (
    Affinity,
    PodAffinity,
    PodTemplate,
    ProjectedSource,
    ResourceRequirements,
    Toleration,
    ValueSource,
    Variable,
    Volume,
    VolumeMount,
)
from understudy.kube.settings import CERTIFICATES, CONFIG, ENVIRONMENT, FETCHING, SECRETS, Cluster

VARIABLE = "UNDERSTUDY_TASK"
PRIVATE = ("MLFLOW_", "UNDERSTUDY_")  # variables of the launcher itself
PROTECTED = ("store", "cache")  # volumes that no task may replace
GPUS = ("gpu", "mig-")  # prefixes of GPU resources' names, after the vendor's


class TaskResources(BaseModel):
    """Amounts by resource name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}

    @property
    def requirements(self) -> ResourceRequirements:
        """The amounts as Kubernetes reads them: a limit is the default request."""
        return {"requests": self.limits | self.requests, "limits": self.limits}


class TaskConfig(BaseModel):
    """Settings of a task. They override the cluster's where both set the same field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    affinity: Affinity = {}
    tolerations: tuple[Toleration, ...] = ()
    node_selector: dict[str, str] = {}
    env: tuple[Variable, ...] = ()
    volumes: tuple[Volume, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    resources: TaskResources = TaskResources()

    @property
    def gpus(self) -> dict[str, str]:
        """The number of the task's GPUs, by resource name."""
        requested = self.resources.requirements["requests"]
        return {name: count for name, count in requested.items() if name.partition("/")[2].startswith(GPUS)}

    def merged(self, template: PodTemplate, spec: JobSpec, cluster: Cluster) -> PodTemplate:
        """Merge the task's settings into a pod template.

        Args:
            template: the pod of a job; its first container is the ranks'. It is not modified.
            spec: the job.
            cluster: the cluster's settings.

        Raises:
            InputError: the task has fewer GPUs than the job needs, or mounts something else at the store's path.
        """
        self._check_gpus(spec)
        pod = template["spec"].copy()
        container = pod["containers"][0].copy()
        pod_affinity = _affinity(pod.get("affinity"), self.affinity)
        if pod_affinity:
            pod["affinity"] = pod_affinity
        pod["nodeSelector"] = pod["nodeSelector"] | self.node_selector
        pod["tolerations"] = self._tolerations(pod["tolerations"])
        container["env"] = self._environment(container["env"])
        container["resources"] = self._resources(container["resources"])
        previous = container["volumeMounts"], pod["volumes"]
        container["volumeMounts"], pod["volumes"] = self._mount(*previous, spec, cluster)
        pod["containers"] = [container, *pod["containers"][1:]]
        return {**template, "spec": pod}

    def _check_gpus(self, spec: JobSpec) -> None:
        for name, count in self.gpus.items():
            if spec.device == "cuda" and count.isdigit() and int(count) < spec.processes:
                raise InputError(
                    f"{spec.section}.processes: each of the {spec.processes} on a node takes a GPU, and the KFP task "
                    f"was given {count} {name}. Give it {spec.processes}, or the job fewer processes."
                )

    def _tolerations(self, base: list[Toleration]) -> list[Toleration]:
        """Merge tolerations. The task's replaces ours for the same taint, even if it only adds a duration."""
        unmatched = [
            toleration
            for toleration in base
            if not any(_replaces(replacement, toleration) for replacement in self.tolerations)
        ]
        return [*unmatched, *self.tolerations]

    def _environment(self, base: list[Variable]) -> list[Variable]:
        """Merge variables. The task's stay as given, without those that only launchers may read."""
        replacements = {variable["name"]: variable for variable in self.env if not _is_private(variable)}
        return [*(entry for entry in base if entry["name"] not in replacements), *replacements.values()]

    def _resources(self, base: ResourceRequirements) -> ResourceRequirements:
        """Merge resources. The task's request and limit both replace ours, of which either could contradict them."""
        task = self.resources.requirements
        named = task["requests"].keys()
        requests = {name: amount for name, amount in base["requests"].items() if name not in named}
        limits = {name: amount for name, amount in base["limits"].items() if name not in named}
        return {**base, "requests": requests | task["requests"], "limits": limits | task["limits"]}

    def _mount(
        self, mounts_before: list[VolumeMount], volumes_before: list[Volume], spec: JobSpec, cluster: Cluster
    ) -> tuple[list[VolumeMount], list[Volume]]:
        """Merge mounts and volumes. A mount of the task replaces ours at its path; the store stays.

        The task mounts the whole store at its path; ranks mount single folders, and further ones only by name.
        """
        sources = self._sources()
        volumes = {volume["name"]: volume for volume in volumes_before}
        base = frozenset(volumes)
        mounts = {posixpath.normpath(mount["mountPath"]): mount for mount in mounts_before}
        protected = {path: mount["name"] for path, mount in mounts.items() if mount["name"] in PROTECTED}
        protected[cluster.mount] = "store"
        home = posixpath.relpath(spec.folder, cluster.mount).split("/")[0]  # the store's folder on the claim
        for mount in self.volume_mounts:
            path, volume = "/" + posixpath.normpath(mount["mountPath"]).lstrip("/"), sources[mount["name"]]
            is_store = (volume.get("persistentVolumeClaim") or {}).get("claimName") == cluster.claim
            if _is_launchers(volume) or (is_store and path == cluster.mount):
                continue
            if path in protected or path.startswith(f"{cluster.mount}/"):
                protected_volume = protected.get(path, "store")
                raise InputError(
                    f"the KFP task mounts {mount['name']} at {path}, the {protected_volume}'s path; move it"
                )
            if is_store:
                _refuse_the_store(mount, home)
            if (volume.get("persistentVolumeClaim") or {}).get("readOnly"):
                mount = {**mount, "readOnly": True}  # noqa: PLW2901 (for one volume of a claim it is the mount's to say)
            name = "store"  # one volume per claim, for all of its mounts
            if not is_store:
                name = mount["name"]
                while name in base or volumes.get(name, {**volume, "name": name}) != {**volume, "name": name}:
                    name = f"task-{name}"[:63]
                volumes[name] = {**volume, "name": name}
            mounts[path] = {**mount, "name": name, "mountPath": path}
        used = {mount["name"] for mount in mounts.values()}
        return list(mounts.values()), [volume for name, volume in volumes.items() if name in used]

    def _sources(self) -> dict[str, Volume]:
        """The task's volumes by name."""
        sources: dict[str, Volume] = {}
        for volume in self.volumes:
            if sources.setdefault(volume["name"], volume) != volume:
                raise InputError(f"the KFP task mounts two different volumes called {volume['name']}: rename one")
        for mount in self.volume_mounts:
            if mount["name"] not in sources:
                raise InputError(f"the KFP task mounts {mount['name']} and has no volume of that name")
        return sources


NOTHING = TaskConfig()


def hand_over(values: Mapping[str, Any] | None) -> None:
    """Pass a task's settings to the step of this process, through its environment.

    Args:
        values: the fields of kfp's TaskConfig; None for those that were not set.
    """
    settings = {name: value for name, value in (values or {}).items() if value is not None}
    os.environ.pop(VARIABLE, None)
    if settings:
        os.environ[VARIABLE] = json.dumps(settings)


def current_task() -> TaskConfig:
    """The settings of this step's task; empty if no KFP server runs it.

    Raises:
        InputError: they are not in the format of KFP.
    """
    try:
        return TaskConfig.model_validate_json(os.environ.get(VARIABLE, "{}"))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or VARIABLE
        raise InputError(f"a setting of the KFP task cannot be passed to its job: {field}: {first['msg']}") from error


def _replaces(override: Toleration, base: Toleration) -> bool:
    """Whether a toleration matches the taint of ours: key, value and effect."""
    if override.get("effect") not in (None, "", base.get("effect")):
        return False
    return _taint(override) == _taint(base)


def _taint(toleration: Toleration) -> tuple[str | None, str, str]:
    """The taint of a toleration, without its effect."""
    return toleration.get("key"), toleration.get("operator") or "Equal", toleration.get("value") or ""


def _affinity(base: Affinity | None, override: Affinity) -> Affinity:
    """Merge affinities by kind and rule: a pool's requirement stays if the task only has preferences."""
    merged = base.copy() if base else Affinity()
    if "nodeAffinity" in override:
        merged["nodeAffinity"] = merged.get("nodeAffinity", {}) | override["nodeAffinity"]
    if "podAffinity" in override:
        merged["podAffinity"] = {**merged.get("podAffinity", PodAffinity()), **override["podAffinity"]}
    if "podAntiAffinity" in override:
        merged["podAntiAffinity"] = {**merged.get("podAntiAffinity", PodAffinity()), **override["podAntiAffinity"]}
    return merged


def _is_private(variable: Variable) -> bool:
    """Whether a variable is private to the launcher, by its name or by the source of its value."""
    source = variable.get("valueFrom") or ValueSource()
    secret = (source.get("secretKeyRef") or {}).get("name")
    values = (source.get("configMapKeyRef") or {}).get("name")
    return variable["name"].startswith(PRIVATE) or secret in SECRETS or values in (ENVIRONMENT, FETCHING)


def _is_launchers(volume: Volume) -> bool:
    """Whether a volume is for launchers only: the cluster's settings, a proxy's certificates, credentials."""
    sources: list[Mapping[str, Any]] = [volume, *(volume.get("projected") or ProjectedSource()).get("sources", ())]
    settings = {(source.get("configMap") or {}).get("name") for source in sources}
    named = [source.get("secret") or {} for source in sources]
    secrets = {secret.get("secretName") or secret.get("name") for secret in named}
    return not settings.isdisjoint((CONFIG, CERTIFICATES)) or not secrets.isdisjoint(SECRETS)


def _refuse_the_store(mount: VolumeMount, home: str) -> None:
    """Reject a mount of the store's claim, unless it is of a folder beside understudy's home."""
    first = posixpath.normpath(mount.get("subPath") or ".").split("/")[0]
    if "subPathExpr" in mount or first in ("", ".", "..", home):
        raise InputError(
            f"the KFP task mounts the store at {mount['mountPath']}, and its job's ranks may see no other job's files; "
            f"name a folder of the claim beside {home} (sub_path), or leave it out"
        )
