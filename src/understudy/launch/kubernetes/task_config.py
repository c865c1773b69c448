"""What was set on the task that launches a job, carried on to the job's pods: GPUs, a node selector, volumes.

The task's own pod is small and only launches. What KFP passes on (kfp.dsl.TaskConfig) reaches the step as JSON in the
environment. It says where and with what a job runs. Of it a step's key knows only whether there are GPUs to compute on.
"""

import json
import os
import posixpath
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes.settings import CONFIG, ENVIRONMENT, SECRETS, Cluster

VARIABLE = "UNDERSTUDY_TASK"
PRIVATE = ("MLFLOW_", "UNDERSTUDY_")  # variables of the launcher itself
KEPT = ("store", "cache")  # volumes that nothing takes the place of
GPUS = ("gpu", "mig-")  # how the names of resources that are GPUs go on behind the vendor's


class Part(BaseModel):
    """A piece of a pod as Kubernetes writes it, of which only some fields mean something here."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str

    @property
    def written(self) -> dict[str, Any]:
        """The piece as it came."""
        return self.model_dump(exclude_unset=True)


class Mount(Part):
    """Where a volume lies in the container."""

    mountPath: str  # noqa: N815 (as Kubernetes writes it)


class Asked(BaseModel):
    """Amounts by the resource's name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}

    @property
    def whole(self) -> dict[str, dict[str, str]]:
        """As Kubernetes reads it: what is limited and not requested is requested too."""
        return {"requests": self.limits | self.requests, "limits": self.limits}


class TaskConfig(BaseModel):
    """What was set on a task. Where it and the cluster's settings speak of the same thing, it wins."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    affinity: dict[str, dict[str, Any]] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    node_selector: dict[str, str] = {}
    env: tuple[Part, ...] = ()
    volumes: tuple[Part, ...] = ()
    volume_mounts: tuple[Mount, ...] = ()
    resources: Asked = Asked()

    @property
    def gpus(self) -> dict[str, str]:
        """The GPUs that the task was given: how many, by the resource that counts them."""
        asked = self.resources.whole["requests"]
        return {name: count for name, count in asked.items() if name.partition("/")[2].startswith(GPUS)}

    def merged(self, template: Mapping[str, Any], spec: JobSpec, cluster: Cluster) -> dict[str, Any]:
        """A pod's template with what was set on the task.

        Args:
            template: the pod of a job; its first container is the ranks'.
            spec: the job.
            cluster: where it runs.

        Raises:
            InputError: the task has fewer GPUs than the job needs, or mounts something else where the store lies.
        """
        self._check_gpus(spec)
        pod = dict(template["spec"])
        container = dict(pod["containers"][0])
        if self.affinity or pod.get("affinity"):
            pod["affinity"] = _affinity(pod.get("affinity", {}), self.affinity)
        pod["nodeSelector"] = pod["nodeSelector"] | self.node_selector
        pod["tolerations"] = self._tolerations(pod["tolerations"])
        container["env"] = self._environment(container["env"])
        container["resources"] = self._resources(container["resources"])
        self._mount(pod, container, cluster)
        pod["containers"] = [container, *pod["containers"][1:]]
        return {**template, "spec": pod}

    def _check_gpus(self, spec: JobSpec) -> None:
        for name, count in self.gpus.items():
            if spec.device == "cuda" and count.isdigit() and int(count) < spec.processes:
                raise InputError(
                    f"{spec.section}.processes: each of the {spec.processes} on a node takes a GPU, and the KFP task "
                    f"was given {count} {name}. Give it {spec.processes}, or the job fewer processes."
                )

    def _tolerations(self, ours: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One for the same taint takes the place of ours, also when it only says for how long."""

        def replaced(toleration: dict[str, Any]) -> bool:
            return any(
                _taint(given) == _taint(toleration) and given.get("effect") in (None, "", toleration.get("effect"))
                for given in self.tolerations
            )

        return [*(found for found in ours if not replaced(found)), *self.tolerations]

    def _environment(self, ours: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Values and references as they were given; what only launchers may know is left out."""
        given = {variable.name: variable.written for variable in self.env if not _is_private(variable.written)}
        return [*(found for found in ours if found["name"] not in given), *given.values()]

    def _resources(self, ours: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        """A resource that the task names is the task's alone: half of ours could contradict it."""
        given = self.resources.whole
        named = given["requests"].keys()
        return {
            kind: {name: amount for name, amount in ours[kind].items() if name not in named} | given[kind]
            for kind in ("requests", "limits")
        }

    def _mount(self, pod: dict[str, Any], container: dict[str, Any], cluster: Cluster) -> None:
        """Add the task's volumes. What a mount of the task takes the place of is gone; the store stays."""
        sources = self._sources()
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        ours = frozenset(volumes)
        mounts = {posixpath.normpath(mount["mountPath"]): mount for mount in container["volumeMounts"]}
        kept = {path: mount["name"] for path, mount in mounts.items() if mount["name"] in KEPT}
        for mount in self.volume_mounts:
            path, source = posixpath.normpath(mount.mountPath), sources[mount.name]
            claim = (source.get("persistentVolumeClaim") or {}).get("claimName")
            if _is_launchers(source) or (claim == cluster.claim and kept.get(path) == "store"):
                continue
            if path in kept:
                raise InputError(f"the KFP task mounts {mount.name} at {path}, where the {kept[path]} lies; move it")
            name = f"task-{mount.name}"[:63] if mount.name in ours else mount.name
            if claim == cluster.claim:
                name = "store"  # one volume for one claim, wherever else it is wanted
            else:
                volumes[name] = {"name": name, **source}
            mounts[path] = {**mount.written, "name": name, "mountPath": path}
        used = {mount["name"] for mount in mounts.values()}
        container["volumeMounts"] = list(mounts.values())
        pod["volumes"] = [volume for name, volume in volumes.items() if name in used]

    def _sources(self) -> dict[str, dict[str, Any]]:
        sources: dict[str, dict[str, Any]] = {}
        for volume in self.volumes:
            source = {key: value for key, value in volume.written.items() if key != "name"}
            if sources.setdefault(volume.name, source) != source:
                raise InputError(f"the KFP task mounts two different volumes called {volume.name}: rename one")
        for mount in self.volume_mounts:
            if mount.name not in sources:
                raise InputError(f"the KFP task mounts {mount.name} and has no volume of that name")
        return sources


NOTHING = TaskConfig()


def hand_over(values: Mapping[str, Any] | None) -> None:
    """Leave what was set on a task to the step that this process does.

    Args:
        values: the fields of kfp's TaskConfig; None for those that were not set.
    """
    found = {name: value for name, value in (values or {}).items() if value is not None}
    os.environ.pop(VARIABLE, None)
    if found:
        os.environ[VARIABLE] = json.dumps(found)


def of_this_step() -> TaskConfig:
    """What was set on this step's task; nothing where no KFP server runs it.

    Raises:
        InputError: it is not what KFP writes.
    """
    try:
        return TaskConfig.model_validate_json(os.environ.get(VARIABLE, "{}"))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or VARIABLE
        raise InputError(f"what is set on the KFP task cannot go to its job: {place}: {first['msg']}") from error


def _taint(toleration: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a toleration tolerates, but for its effect."""
    return toleration.get("key"), toleration.get("operator") or "Equal", toleration.get("value") or ""


def _affinity(ours: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """By kind and by rule: a pool's requirement stays when the task only prefers something."""
    return {kind: {**ours.get(kind, {}), **given.get(kind, {})} for kind in {**ours, **given}}


def _is_private(variable: Mapping[str, Any]) -> bool:
    reference = variable.get("valueFrom") or {}
    secret, values = ((reference.get(kind) or {}).get("name") for kind in ("secretKeyRef", "configMapKeyRef"))
    return variable["name"].startswith(PRIVATE) or secret in SECRETS or values == ENVIRONMENT


def _is_launchers(source: Mapping[str, Any]) -> bool:
    """Whether a volume holds what only launchers read: the cluster's settings, or credentials."""
    name = (source.get("configMap") or {}).get("name")
    return name == CONFIG or (source.get("secret") or {}).get("secretName") in SECRETS
