"""Settings of the pods of a pipeline's tasks in a cluster: the store, the cluster's settings, and how to launch jobs.

The names are those of manifests/base. kfp.local would drop such settings, so only a compiled pipeline has them.
"""

from collections.abc import Container
from typing import Any

from kfp import kubernetes

from understudy import logs, metrics
from understudy.graph import INGEST, PREPARE, node_of, nodes, trainings
from understudy.kube.identity import DRIVER, FETCHES, NO_SIDECAR
from understudy.kube.settings import (
    CERTIFICATES,
    CERTIFICATES_FOLDER,
    CONFIG,
    ENVIRONMENT,
    FETCHING,
    LAUNCHER,
    PROXY,
    SECRETS,
    SETTINGS,
)
from understudy.launch.platform import CLUSTER
from understudy.recipe import Recipe
from understudy.recipe.hub import TOKENIZER, hub_ids, source_section
from understudy.registry.pod_token import SETTING
from understudy.registry.server import PAGES
from understudy.registry.signature import PUBLIC
from understudy.runs.submission import SETTINGS_FOLDER
from understudy.store.remote_cache import ADDRESS, OLD_ADDRESS

START = "start"
"""The first task, which looks up all steps."""
CLAIM, MOUNT = "understudy-store", "/var/lib/understudy"
OPTIONAL = (
    ADDRESS,
    OLD_ADDRESS,  # a pod refuses to start with it, instead of ignoring the bucket
    "AWS_ENDPOINT_URL",
    logs.VARIABLE,
    metrics.VARIABLE,
    PUBLIC,
    PAGES,
    SETTING,
)
LABELS = {**DRIVER, **NO_SIDECAR}
"""The network policies select pods by them."""
RETRIES = 3
STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""A stock KFP treats a deleted pod as failed and does not retry it, so autoscalers must not move it."""
SIZE = {"cpu_request": "250m", "memory_request": "1Gi", "cpu_limit": "4", "memory_limit": "8Gi"}
"""Of a task's pod, if the task launches no job; otherwise its resources are the job's (components/passthrough.py)."""


def fetching(recipe: Recipe) -> set[str]:
    """The tasks of a recipe's pipeline that fetch from outside the cluster, and start with them, for its lookup."""
    ids = hub_ids(recipe)
    tasks = {node.name for node in trainings(recipe) if node.model in ids}
    tasks |= {node_of(recipe, PREPARE).name} if TOKENIZER in ids else set()
    tasks |= {node.name for node in nodes(recipe) if node.kind is INGEST and source_section(node.data) in ids}
    return tasks | {START} if tasks else tasks


def settle(task: Any, launches: bool, fetching: Container[str] = ()) -> None:
    """Give a task's pod the store's claim, the cluster's settings, and addresses and credentials of services.

    Args:
        task: kfp's task.
        launches: whether the task launches a job.
        fetching: the names of the tasks that fetch.
    """
    for name, value in LABELS.items():
        kubernetes.add_pod_label(task, name, value)
    for name, value in STAYS.items():
        kubernetes.add_pod_annotation(task, name, value)
    if task.name in fetching:
        _let_out(task)
    task.set_retry(RETRIES)  # the versions of KFP and Argo decide which failures count: docs/operating/cluster.md
    kubernetes.set_security_context(task, run_as_non_root=True)  # required in a profile's namespace
    if not launches:
        for setting, amount in SIZE.items():
            getattr(task, f"set_{setting}")(amount)
    kubernetes.mount_pvc(task, pvc_name=CLAIM, mount_path=MOUNT)
    kubernetes.use_config_map_as_volume(task, config_map_name=CONFIG, mount_path=SETTINGS_FOLDER)
    kubernetes.use_config_map_as_env(
        task, config_map_name=ENVIRONMENT, config_map_key_to_env={"MLFLOW_TRACKING_URI": "MLFLOW_TRACKING_URI"}
    )
    kubernetes.use_config_map_as_env(
        task, config_map_name=ENVIRONMENT, config_map_key_to_env={name: name for name in OPTIONAL}, optional=True
    )
    for secret, names in SECRETS.items():
        kubernetes.use_secret_as_env(
            task, secret_name=secret, secret_key_to_env={name: name for name in names}, optional=True
        )
    for name, value in (
        ("UNDERSTUDY_HOME", f"{MOUNT}/home"),
        (LAUNCHER, CLUSTER),
        (SETTINGS, f"{SETTINGS_FOLDER}/cluster.yaml"),
    ):
        task.set_env_variable(name, value)


def _let_out(task: Any) -> None:
    """Label a task's pod as one that fetches, and give it the proxy and its certificates, if there are any."""
    for label, value in FETCHES.items():
        kubernetes.add_pod_label(task, label, value)
    kubernetes.use_config_map_as_env(
        task, config_map_name=FETCHING, config_map_key_to_env={name: name for name in PROXY}, optional=True
    )
    kubernetes.use_config_map_as_volume(
        task, config_map_name=CERTIFICATES, mount_path=CERTIFICATES_FOLDER, optional=True
    )
