"""Whether a pending pod can ever get a node, from the nodes and a cluster autoscaler's events.

Pure functions of API responses.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from understudy.kube.objects import REQUIRED, KubernetesObject
from understudy.kube.quantities import amount
from understudy.kube.settings import STORE

SCALING = {"TriggeredScaleUp", "Nominated"}  # the cluster autoscaler's event, and Karpenter's
NO_NODE_NOW = ("in backoff after failed scale-up", "max cluster")
"""Reasons why the cluster autoscaler does not consider a kind of node now."""
ALL_NODES = "max node group size reached"
"""The same for a kind that has all its nodes: these decide, once they are there."""


def is_scaling(events: Sequence[KubernetesObject]) -> bool:
    """Whether a cluster autoscaler is adding a node for these pods."""
    return any(event.get("reason") in SCALING for event in events)


def knows_a_node(events: Sequence[KubernetesObject]) -> bool:
    """Whether a cluster autoscaler has a suitable kind of node, even if the cloud has none of these now."""
    return any(event.get("reason") in {*SCALING, "FailedScaleUp"} for event in events)


def may_get_a_node(events: Sequence[KubernetesObject]) -> bool:
    """Whether a cluster autoscaler has, or may have, a node for these pods; its newest event counts."""
    return knows_a_node(events) or any(reason in word for word in _refusal(events) for reason in NO_NODE_NOW)


def has_all_nodes(events: Sequence[KubernetesObject]) -> bool:
    """Whether a cluster autoscaler reports that a node group has its maximum size."""
    return any(ALL_NODES in word for word in _refusal(events))


def _refusal(events: Sequence[KubernetesObject]) -> list[str]:
    """The cluster autoscaler's newest reason for not adding a node; empty if it gave none."""
    return [event["message"] for event in events if event.get("reason") == "NotTriggerScaleUp"][-1:]


def never_fits(pod: KubernetesObject, nodes: Sequence[KubernetesObject]) -> str:
    """The reason why no node could take a pod even if it were empty; empty if one could."""
    # Allocatable resources, not free ones: other pods end, but a node does not grow.
    fitting = _matching_nodes(pod, nodes)
    if not fitting:
        labels = ", ".join(f"{key}={value}" for key, value in (pod["spec"].get("nodeSelector") or {}).items())
        return f"no node has the labels {labels}"
    for name, value in _requests(pod).items():
        most = max(amount(node["status"].get("allocatable", {}).get(name, "0")) for node in fitting)
        if value > most:
            return f"a pod asks for {value:f} {name}, and the largest node of its kind has {most:f}"
    return ""


def has_its_kind(pod: KubernetesObject, nodes: Sequence[KubernetesObject]) -> bool:
    """Whether a node matches a pod's selector, and has some of every resource that it requests."""
    offers = [node["status"].get("allocatable", {}) for node in _matching_nodes(pod, nodes)]
    return any(_has_all(offer, _requests(pod)) for offer in offers)


def _has_all(offer: Mapping[str, str], names: Iterable[str]) -> bool:
    # A new GPU node is Ready before it offers its GPUs: those come with the device plugin's pod.
    return all(amount(offer.get(name, "0")) > 0 for name in names)


def shared_claims(pod: KubernetesObject) -> list[str]:
    """The claims whose pods have to share a node with this pod, if the store is on one node."""
    terms = pod["spec"].get("affinity", {}).get("podAffinity", {}).get(REQUIRED, ())
    claims = [(term.get("labelSelector") or {}).get("matchLabels", {}).get(STORE) for term in terms]
    return [claim for claim in claims if claim]


def _matching_nodes(pod: KubernetesObject, nodes: Sequence[KubernetesObject]) -> list[KubernetesObject]:
    selector = pod["spec"].get("nodeSelector") or {}
    return [node for node in nodes if has_labels(node, selector)]


def has_labels(node: KubernetesObject, selector: Mapping[str, str]) -> bool:
    """Whether a node selector matches this node."""
    labels = node["metadata"].get("labels") or {}
    return selector.items() <= labels.items()


def _requests(pod: KubernetesObject) -> dict[str, Decimal]:
    totals: dict[str, Decimal] = {}
    for container in pod["spec"]["containers"]:
        for name, value in (container.get("resources", {}).get("requests") or {}).items():
            totals[name] = totals.get(name, Decimal(0)) + amount(value)
    return totals
