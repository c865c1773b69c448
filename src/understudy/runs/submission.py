"""A run in a cluster without KFP: a Job whose pod runs the recipe's pipeline and launches its trainings.

The pod may be evicted at any time: the next one resumes the run and its jobs. The Job owns them, so deleting the Job
ends the whole run.
"""

import secrets
import time
from typing import Any

import yaml

from understudy.errors import InputError, UnderstudyError
from understudy.graph import nodes
from understudy.kube.api import Kube
from understudy.kube.identity import DRIVER, FETCHES, NO_SIDECAR, RUN
from understudy.kube.objects import KubernetesObject, VolumeMount, VolumeSource
from understudy.kube.operators import KUEUE
from understudy.kube.settings import (
    ANYWHERE,
    CERTIFICATES,
    CERTIFICATES_FOLDER,
    CONFIG,
    ENVIRONMENT,
    FETCHING,
    LAUNCHER,
    RUN_ID,
    SECRETS,
    SETTINGS,
    Cluster,
    Pool,
    affinity,
    read,
)
from understudy.launch.kubernetes import preflight
from understudy.launch.kubernetes.rendering.pod_security import SECURITY, container, volumes
from understudy.launch.platform import CLUSTER
from understudy.recipe import Recipe
from understudy.recipe.hub import hub_ids
from understudy.registry import pod_token
from understudy.store.remote_cache import ADDRESS

ACCOUNT = "understudy-pipeline"
CONTAINER = "driver"
SETTINGS_FOLDER, RECIPE_FOLDER = "/etc/understudy", "/etc/understudy-run"
FINAL = [1, 2, 3]  # exit codes of a run with a final result; another pod would reach the same one
RETENTION = 24 * 3600


def settings(kube: Kube) -> Cluster:
    """The cluster's settings, from the namespace's ConfigMap.

    Raises:
        InputError: they are missing or wrong.
    """
    config_map = kube.call(kube.core.read_namespaced_config_map, CONFIG, kube.namespace)
    if config_map is None or "cluster.yaml" not in config_map.get("data", {}):
        raise InputError(
            f"namespace {kube.namespace}: there is no ConfigMap {CONFIG} with cluster.yaml; kubectl apply -k one of "
            "manifests/overlays first, or name another namespace with --namespace"
        )
    return read(config_map["data"]["cluster.yaml"], f"ConfigMap {CONFIG} in namespace {kube.namespace}: cluster.yaml")


def check(kube: Kube, cluster: Cluster, recipe: Recipe) -> None:
    """Check that the recipe's jobs can run in the cluster, before anything is submitted.

    Raises:
        InputError: the operator, a pool, a queue or the claim is missing or unsuitable.
    """
    for section, resources in recipe.resources.by_job.items():
        cluster.pool_of(resources, f"resources.{section}")
        preflight.check(kube, cluster.kind, cluster, resources, f"resources.{section}")
        if cluster.one_node and resources.nodes > 1:
            raise InputError(
                f"resources.{section}.nodes: {resources.nodes}; this cluster's store is on one node (one_node in its "
                "settings): set it to 1, or use a claim that is ReadWriteMany"
            )
        name = cluster.queue_of(resources)
        if name and queue(kube, name) is None:
            raise InputError(f"resources.{section}.queue: namespace {kube.namespace} has no LocalQueue {name}")
    claim = kube.call(kube.core.read_namespaced_persistent_volume_claim, cluster.claim, kube.namespace)
    if claim is None:
        raise InputError(f"namespace {kube.namespace}: there is no claim {cluster.claim} for the store")
    modes = claim["spec"]["accessModes"]
    if "ReadWriteMany" not in modes and not (cluster.one_node and "ReadWriteOnce" in modes):
        raise InputError(
            f"claim {cluster.claim}: is {', '.join(modes)}; the store needs ReadWriteMany, since pods of several "
            "nodes write to it. Where no storage class has that, make it ReadWriteOnce and set one_node in the "
            f"cluster's settings, so that all pods share a node; {ADDRESS}=s3://BUCKET/PREFIX keeps finished steps."
        )
    driver_pool(cluster, recipe)


def driver_pool(cluster: Cluster, recipe: Recipe) -> Pool:
    """The pool of a run's driver pod: the cluster's default, or that of its jobs if the store is on one node.

    Raises:
        InputError: the store is on one node, and the jobs are in several pools.
    """
    if not cluster.one_node:
        return cluster.default_pool
    launched = {node.resources for node in nodes(recipe) if node.kind.launches and (node.training or not node.learner)}
    jobs = {key: resources for key, resources in recipe.resources.written.items() if key in launched}
    if len({job.pool for job in jobs.values()}) > 1:
        fields = ", ".join(f"resources.{name}.pool" for name in jobs)
        raise InputError(
            f"{fields}: differ; this cluster's store is on one node (one_node in its settings), so all of "
            "a run's pods have to be there"
        )
    key, resources = next(iter(jobs.items()))
    return cluster.pool_of(resources, f"resources.{key}")


def queue(kube: Kube, name: str) -> Any:
    """Kueue's LocalQueue of this name; None when there is none."""
    if kube.kueue is None:
        return None
    address = (KUEUE, kube.kueue, kube.namespace, "localqueues")
    return kube.call(kube.custom.get_namespaced_custom_object, *address, name)


def submit(kube: Kube, cluster: Cluster, recipe: Recipe, *, profile: bool = False) -> str:
    """Start a run, optionally with profiles of its trainings.

    Returns:
        The run's id, which is the Job's name too.

    Raises:
        UnderstudyError: the cluster rejects it or a part of it; the message names the run if a part may be left.
    """
    name = f"{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    job = render(name, cluster, driver_pool(cluster, recipe), fetches=bool(hub_ids(recipe)), profile=profile)
    values = yaml.safe_dump(recipe.model_dump(mode="json", by_alias=True), sort_keys=False)
    try:
        created = kube.call(kube.batch.create_namespaced_job, kube.namespace, job)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": created["metadata"]["uid"]}
        recipe_map = {"metadata": {"name": name, "ownerReferences": [owner]}, "data": {"recipe.yaml": values}}
        kube.call(kube.core.create_namespaced_config_map, kube.namespace, recipe_map)
    except BaseException as error:  # Ctrl-C too: the pod of a Job without its recipe would wait for it forever
        _take_back(kube, name, str(error) or "interrupted")
        raise
    return name


def _take_back(kube: Kube, name: str, reason: str) -> None:
    try:
        kube.call(kube.batch.delete_namespaced_job, name, kube.namespace, propagation_policy="Background")
    except UnderstudyError as error:
        fix = f"if `understudy jobs ls -n {kube.namespace}` shows the run {name}, `understudy jobs stop` ends it"
        raise UnderstudyError(f"{reason}; the partial submission could not be removed ({error}): {fix}") from error


def render(
    name: str, cluster: Cluster, pool: Pool = ANYWHERE, *, fetches: bool = False, profile: bool = False
) -> KubernetesObject:
    """The Job of a run, on nodes of a pool.

    Args:
        name: the run's name.
        cluster: its settings.
        pool: the pool of its pod.
        fetches: whether a step downloads something. All steps run in this pod, so all of them have network access then.
        profile: whether its trainings are profiled.
    """
    labels = {**DRIVER, RUN: name, **(FETCHES if fetches else {})}
    pod_affinity = affinity(cluster, pool, near={})
    pod = {
        "serviceAccountName": ACCOUNT,
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "securityContext": SECURITY,
        **({"affinity": pod_affinity} if pod_affinity else {}),
        "nodeSelector": pool.node_selector,
        "tolerations": list(pool.tolerations),
        "containers": [_container(name, cluster, fetches, profile)],
        "volumes": volumes(cluster, _sources(name, fetches)),
    }
    final = {"containerName": CONTAINER, "operator": "In", "values": FINAL}
    rules = [
        {"action": "FailJob", "onExitCodes": final},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 5,
            "ttlSecondsAfterFinished": RETENTION,
            "podFailurePolicy": {"rules": rules},
            "template": {"metadata": {"labels": labels | cluster.store_label | NO_SIDECAR}, "spec": pod},
        },
    }


def _sources(run: str, fetches: bool) -> dict[str, VolumeSource]:
    """The volumes of a run's pod by name, besides the store and /tmp."""
    sources: dict[str, VolumeSource] = {
        "settings": {"configMap": {"name": CONFIG}},
        "recipe": {"configMap": {"name": run}},
        "mlflow": pod_token.VOLUME,
    }
    if fetches:
        sources["certificates"] = {"configMap": {"name": CERTIFICATES, "optional": True}}
    return sources


def _container(run: str, cluster: Cluster, fetches: bool, profile: bool) -> KubernetesObject:
    environment = {
        "UNDERSTUDY_HOME": f"{cluster.mount}/home",
        LAUNCHER: CLUSTER,
        SETTINGS: f"{SETTINGS_FOLDER}/cluster.yaml",
        RUN_ID: run,
        "HOME": "/tmp",
        "MPLCONFIGDIR": "/tmp/matplotlib",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    command = ["python", "-m", "understudy", "run", f"{RECIPE_FOLDER}/recipe.yaml", *["--profile"] * profile]
    folders = {"store": cluster.mount, "settings": SETTINGS_FOLDER, "recipe": RECIPE_FOLDER}
    folders["mlflow"] = pod_token.FOLDER
    folders |= {"certificates": CERTIFICATES_FOLDER} if fetches else {}
    mounts: list[VolumeMount] = [{"name": name, "mountPath": path} for name, path in folders.items()]
    return {
        **container(CONTAINER, cluster, command, mounts),
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "envFrom": [
            *({"configMapRef": {"name": name, "optional": True}} for name in (ENVIRONMENT, *[FETCHING] * fetches)),
            *({"secretRef": {"name": name, "optional": True}} for name in SECRETS),
        ],
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "8Gi"}},
    }
