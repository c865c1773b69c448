"""understudy doctor --cluster: checks that the cluster has the requirements of runs, with a fix for each problem."""

from collections.abc import Callable, Iterable, Iterator

from understudy.cli import doctor_accounts, doctor_operators
from understudy.cli.check import Check
from understudy.errors import InputError, UnderstudyError
from understudy.kube.api import Kube, Refused
from understudy.kube.kind import KINDS, TRAINJOB
from understudy.kube.objects import KubernetesObject
from understudy.kube.operators import KUEUE
from understudy.kube.scheduling import has_labels
from understudy.kube.settings import CONFIG, Cluster, Pool
from understudy.launch.kubernetes.rendering import network, trainjob
from understudy.recipe import Resources
from understudy.runs import submission

RIGHTS = (
    ("create", "batch", "jobs"),
    ("delete", "batch", "jobs"),
    ("create", "", "configmaps"),
    ("get", "", "pods/log"),
    ("list", "", "events"),
    ("create", "", "pods/portforward"),
    *((verb, kind.group, kind.plural) for kind in KINDS.values() for verb in ("list", "delete")),
    ("get", TRAINJOB.group, "trainingruntimes"),
)
ROLE = "ask for the Role understudy-user of manifests/base/rights.yaml in this namespace"


def checks(namespace: str | None) -> Iterator[Check]:
    """All checks, in the order in which runs need the objects."""
    try:
        kube = Kube(namespace)
        kube.call(kube.core.get_api_resources)
    except UnderstudyError as error:
        yield Check("cluster", "no answer", str(error))
        return
    yield Check("cluster", f"{kube.core.api_client.configuration.host}, namespace {kube.namespace}")
    if not kube.has_namespace():
        yield Check(
            "namespace",
            f"{kube.namespace} is not there",
            "kubectl apply -k one of manifests/overlays makes it, or give -n another",
        )
        return
    absent = {kind.group for kind in KINDS.values() if not kube.has(kind)}
    for verb, group, resource in (right for right in RIGHTS if right[1] not in absent):
        allowed = kube.allows(verb, group, resource)
        name = f"{resource}.{group}" if group else resource
        yield Check(f"right to {verb} {name}", "yes" if allowed else "no", "" if allowed else ROLE)
    yield from doctor_accounts.checks(kube, absent)
    try:
        cluster = submission.settings(kube)
    except UnderstudyError as error:
        yield Check("settings", "cannot be used", str(error))
        return
    yield Check("settings", f"ConfigMap {CONFIG}, image {cluster.image}, launcher {cluster.launcher}")
    yield from _operator(kube, cluster)
    yield from _readable("External Secrets", lambda: doctor_operators.external_secrets(kube))
    yield from _readable("claim", lambda: [_claim(kube, cluster)])
    yield from _readable("queue", lambda: _queue(kube, cluster))
    yield from _readable("pools", lambda: _pools(kube, cluster))
    yield from _readable("mlflow", lambda: [_mlflow(kube)])
    yield from _readable("network", lambda: [_network(kube)])


def _readable(subject: str, checks: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """The checks, as far as this account may read the objects."""
    try:
        yield from checks()
    except Refused as error:
        yield Check(subject, "cannot be seen from this account", str(error))


def _operator(kube: Kube, cluster: Cluster) -> Iterator[Check]:
    """Check the operator of the cluster's jobs."""
    kind = cluster.kind
    if not kube.has(kind):
        yield Check(f"{kind.plural}.{kind.api_version}", "not there", kind.missing)
        return
    yield doctor_operators.fields(kube, kind)
    if kind is TRAINJOB:
        yield from _readable("runtime", lambda: [_runtime(kube, cluster)])


def _runtime(kube: Kube, cluster: Cluster) -> Check:
    try:
        trainjob.check(kube, cluster, Resources(), "resources.<job>")
    except InputError as error:
        return Check("runtime", f"TrainingRuntime {trainjob.RUNTIME} cannot be used", str(error))
    return Check("runtime", f"TrainingRuntime {trainjob.RUNTIME}")


def _claim(kube: Kube, cluster: Cluster) -> Check:
    claim = kube.call(kube.core.read_namespaced_persistent_volume_claim, cluster.claim, kube.namespace)
    if claim is None:
        return Check("claim", f"{cluster.claim} is not there", "kubectl apply -k one of manifests/overlays")
    modes, phase = ", ".join(claim["spec"]["accessModes"]), claim["status"].get("phase", "Pending")
    enough = ("ReadWriteMany", "ReadWriteOnce") if cluster.one_node else ("ReadWriteMany",)
    if not set(enough) & set(claim["spec"]["accessModes"]):
        fix = "give it a storage class that is ReadWriteMany; docs/operating/cluster.md: Without ReadWriteMany"
        return Check("claim", f"{cluster.claim} is {modes}", fix)
    fix = "" if phase == "Bound" else "is there a storage class that provides ReadWriteMany? kubectl describe pvc says"
    return Check("claim", f"{cluster.claim}, {modes}, {phase}", fix or _unprepared(kube))


def _unprepared(kube: Kube) -> str:
    """The fix if the Job that creates the store's folder has not succeeded; it is removed some time after it has."""
    job = kube.call(kube.batch.read_namespaced_job, "understudy-prepare-store", kube.namespace)
    if job is None or job.get("status", {}).get("succeeded"):
        return ""
    command = f"kubectl -n {kube.namespace} logs job/understudy-prepare-store"
    return f"not ready yet: {command} says why when it stays so; is its root writable for group 1000?"


def _queue(kube: Kube, cluster: Cluster) -> Iterator[Check]:
    if cluster.queue is None:
        yield Check("queue", "none: jobs start at once")
        return
    yield doctor_operators.kueue(kube)
    yield from _readable("Kueue's settings", lambda: [doctor_operators.queueing(kube, cluster)])
    queue_object = submission.queue(kube, cluster.queue)
    fix = "" if queue_object else f"make a LocalQueue {cluster.queue} in namespace {kube.namespace}"
    yield Check("queue", cluster.queue, fix)
    if queue_object:
        yield from _quotas(kube, cluster, queue_object["spec"].get("clusterQueue", ""))


def _quotas(kube: Kube, cluster: Cluster, name: str) -> Iterator[Check]:
    """Check that the cluster queue can admit a job of each pool: a quota for its GPUs, a flavor of its nodes."""
    if not all(kube.allows("get", KUEUE, kind, namespaced=False) for kind in ("clusterqueues", "resourceflavors")):
        yield Check("quotas", f"ClusterQueue {name}; its flavors cannot be seen from this account")
        return
    queue = kube.call(kube.custom.get_cluster_custom_object, KUEUE, kube.kueue, "clusterqueues", name)
    if queue is None:
        yield Check("quotas", f"ClusterQueue {name} is not there", "make it, or name another one in the LocalQueue")
        return
    if shut_out := _shut_out(kube, queue):
        yield Check("quotas", f"ClusterQueue {name} takes no jobs of namespace {kube.namespace}", shut_out)
    groups = queue["spec"].get("resourceGroups", ())
    labels = {flavor["name"]: _labels(kube, flavor["name"]) for group in groups for flavor in group["flavors"]}
    for pool_name, pool in sorted(cluster.pools.items()):
        yield Check(f"quota for pool {pool_name}", f"ClusterQueue {name}", _lacking(name, groups, labels, pool))


def _shut_out(kube: Kube, queue: KubernetesObject) -> str:
    """The fix if a cluster queue takes no jobs of this namespace; match expressions are not evaluated here."""
    selector = queue["spec"].get("namespaceSelector")
    if selector is None:
        return "give it a namespaceSelector: without one it takes the jobs of no namespace"
    if not kube.allows("get", "", "namespaces", namespaced=False):
        return ""
    labels = kube.call(kube.core.read_namespace, kube.namespace)["metadata"].get("labels") or {}
    lacking = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items() if labels.get(key) != value]
    return f"its namespaceSelector wants {', '.join(lacking)}" if lacking else ""


def _labels(kube: Kube, flavor: str) -> dict[str, str] | None:
    """A flavor's node labels; None when there is no such flavor."""
    flavor_object = kube.call(kube.custom.get_cluster_custom_object, KUEUE, kube.kueue, "resourceflavors", flavor)
    return dict(flavor_object.get("spec", {}).get("nodeLabels", {})) if flavor_object else None


def _lacking(name: str, groups: list[KubernetesObject], labels: dict[str, dict[str, str] | None], pool: Pool) -> str:
    """The fix if a cluster queue cannot admit a job of a pool; empty if it can."""
    needed_resources = {"cpu", "memory"} | ({pool.gpu} if pool.gpu else set())
    if pool.gpu and not any(pool.gpu in group["coveredResources"] for group in groups):
        return f"give ClusterQueue {name} a quota for {pool.gpu}: without one it admits no job that asks for any"
    for group in groups:
        if not needed_resources & set(group["coveredResources"]):
            continue
        all_labels = [labels[flavor["name"]] for flavor in group["flavors"]]
        flavors = [flavor_labels for flavor_labels in all_labels if flavor_labels is not None]
        keys = {key for flavor in flavors for key in flavor}
        if not any(_fits(flavor, keys, pool) for flavor in flavors):
            return f"give ClusterQueue {name} a ResourceFlavor with the pool's labels"
    return ""


def _fits(flavor: dict[str, str], keys: set[str], pool: Pool) -> bool:
    """Kueue 0.12 compares a pod's selector with a flavor's labels, by the keys of all flavors in the group."""
    return all(flavor.get(key) == value for key, value in pool.node_selector.items() if key in keys)


def _pools(kube: Kube, cluster: Cluster) -> Iterator[Check]:
    if not kube.allows("list", "", "nodes", namespaced=False):
        yield Check("pools", f"{len(cluster.pools)}; their nodes cannot be seen from this account")
        return
    nodes = kube.nodes()
    for name, pool in sorted(cluster.pools.items()):
        fitting = [node for node in nodes if has_labels(node, pool.node_selector)]
        gpus = [node["status"]["allocatable"].get(pool.gpu or "", "0") for node in fitting]
        description = f"{len(fitting)} nodes" + (f", {' + '.join(gpus)} {pool.gpu}" if pool.gpu else "")
        fix = "" if fitting else "no node has its labels now; an autoscaler may add some, or correct node_selector"
        yield Check(f"pool {name}", description, fix or _open_to_all(cluster, pool, fitting))


def _open_to_all(cluster: Cluster, pool: Pool, nodes: list[KubernetesObject]) -> str:
    """The fix if jobs without a pool may be scheduled onto GPU nodes; empty if they may not."""
    untainted = [node for node in nodes if not node["spec"].get("taints")]
    if not pool.gpu or not untainted or cluster.pool:
        return ""
    return (
        f"{untainted[0]['metadata']['name']} has no taint, so jobs that name no pool may land there: taint it, or name "
        "the pool of such jobs (`pool` in the cluster's settings)"
    )


def _mlflow(kube: Kube) -> Check:
    endpoints = kube.call(kube.core.read_namespaced_endpoints, "mlflow", kube.namespace)
    if endpoints is None:
        return Check("mlflow", "no Service mlflow here; MLFLOW_TRACKING_URI in the environment ConfigMap counts")
    # Readiness is the server's answer at /health, which needs no authentication.
    ready = any(subset.get("addresses") for subset in endpoints.get("subsets", ()))
    command = f"kubectl -n {kube.namespace} logs deployment/mlflow, or describe pod -l app.kubernetes.io/name=mlflow"
    return Check("mlflow", "ready" if ready else "not ready", "" if ready else command)


def _network(kube: Kube) -> Check:
    """Check that ranks are isolated from other pods: runs start without the policy, so nothing else reports it."""
    if kube.has_policy(network.RANKS):
        return Check("network", f"NetworkPolicy {network.RANKS}, where the cluster's network enforces policies")
    description = (
        f"no NetworkPolicy {network.RANKS}: every pod that reaches a rank may speak to it, and ranks to everybody"
    )
    return Check("network", f"{description}; one of manifests/overlays brings it")
