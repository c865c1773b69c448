"""understudy doctor --cluster: checks that the versions of the cluster's operators have the required features."""

from collections.abc import Iterator

import yaml

from understudy.cli.check import Check
from understudy.kube.api import Kube, Refused
from understudy.kube.kind import JobKind
from understudy.kube.operators import KUEUE, PYTORCHJOBS_OFF, SECRETS, other_version, shown
from understudy.kube.settings import CONFIG, Cluster

KUEUE_NAMESPACE, KUEUE_CONFIG = "kueue-system", "kueue-manager-config"
STORE = "secret-store"


def fields(kube: Kube, kind: JobKind) -> Check:
    """Check that the type of the cluster's jobs has the fields that we set."""
    subject = f"{kind.plural}.{kind.api_version}"
    served_fields = kube.fields(kind)
    if served_fields is None:
        return Check(subject, "there")
    lacking = [field for field in kind.fields if field not in served_fields]
    fix = f"install {kind.operator}: the version here cannot run our jobs"
    return Check(subject, f"has no {', '.join(lacking)}" if lacking else "there", fix if lacking else "")


def kueue(kube: Kube) -> Check:
    """Check the version of Kueue's API."""
    fix = "" if kube.kueue else "install Kueue, or take queue out of the cluster's settings"
    return Check(f"localqueues.{KUEUE}", kube.kueue or "not there", fix)


def queueing(kube: Kube, cluster: Cluster) -> Check:
    """Check that Kueue manages the cluster's kind of job: it lets an unmanaged job wait forever."""
    framework = f"{cluster.kind.group}/{cluster.kind.name.lower()}"
    subject = f"Kueue manages {cluster.kind.name}s"
    try:
        config_map = kube.call(kube.core.read_namespaced_config_map, KUEUE_CONFIG, KUEUE_NAMESPACE)
    except Refused:
        config_map = None
    if config_map is None:
        note = f"Kueue {shown(PYTORCHJOBS_OFF)} and later does so for PyTorchJobs only if configured"
        return Check(subject, f"not known: ConfigMap {KUEUE_CONFIG} of {KUEUE_NAMESPACE} cannot be seen; {note}")
    config = yaml.safe_load(config_map["data"]["controller_manager_config.yaml"]) or {}
    managed = (config.get("integrations") or {}).get("frameworks") or ()
    if framework in managed:
        return Check(subject, "yes")
    location = f"ConfigMap {KUEUE_CONFIG} in namespace {KUEUE_NAMESPACE}"
    return Check(subject, "no", f"list {framework} in integrations.frameworks of {location}, and restart Kueue")


def external_secrets(kube: Kube) -> Iterator[Check]:
    """Check that the operator serves the version of our objects, if credentials are in an external store."""
    config_map = kube.call(kube.core.read_namespaced_config_map, CONFIG, kube.namespace)
    if STORE not in config_map["data"]:
        return
    served = kube.serves(SECRETS, "externalsecrets")
    shows = ", ".join(sorted(served)) or "not there"
    yield Check(f"externalsecrets.{SECRETS}", shows, "" if _has_older(kube, served) else _fix_for_version(served))


def _fix_for_version(served: frozenset[str]) -> str:
    return other_version(SECRETS, "v1", served)


def _has_older(kube: Kube, served: frozenset[str]) -> bool:
    """Whether only v1beta1 is served and the namespace has such objects, from the component for it."""
    if served != {"v1beta1"} or not kube.allows("list", SECRETS, "externalsecrets"):
        return False
    resource = (SECRETS, "v1beta1", kube.namespace, "externalsecrets")
    return bool(kube.call(kube.custom.list_namespaced_custom_object, *resource)["items"])
