"""Ends of connections, and whether network policies allow a connection between two of them."""

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from tests.unit.manifests.rendered import named
from understudy.kube.identity import DRIVER as LAUNCHES
from understudy.kube.identity import FETCHES, PARTS, Identity
from understudy.launch.kubernetes.rendering import network


@dataclass(frozen=True)
class Peer:
    """A pod by its labels and those of its namespace; without any, an address that is no pod's."""

    labels: dict[str, str] | None = None
    namespace: dict[str, str] = field(default_factory=lambda: {"kubernetes.io/metadata.name": "understudy"})
    address: str = "203.0.113.1"

    @property
    def is_ours(self) -> bool:
        """Whether the policies are about it."""
        return self.labels is not None and self == Peer(self.labels)


DRIVER = Peer(dict(LAUNCHES))
FETCHER = Peer({**LAUNCHES, **FETCHES})
CLEANUP = Peer({"app.kubernetes.io/name": "understudy", "app.kubernetes.io/component": "cleanup"})
TEACHER = Identity("run-1", "teacher", "7" * 64)
DISTILL = Identity("run-1", "distill", "5" * 64)
EVALUATE = Identity("run-1", "evaluate", "e" * 64)
RANK, SAME_AGAIN = Peer(TEACHER.labels), Peer(Identity("run-2", "teacher", TEACHER.key).labels)
OTHER_RANK, MEASURING = Peer(DISTILL.labels), Peer(EVALUATE.labels)
UNKNOWN_RANK = Peer(dict(PARTS))
MLFLOW = Peer({"app.kubernetes.io/name": "mlflow"})
OTHER = Peer({"app.kubernetes.io/name": "somebody"})
DNS = Peer({"k8s-app": "kube-dns"}, {"kubernetes.io/metadata.name": "kube-system"})
ELSEWHERE = Peer({"app.kubernetes.io/name": "mlflow"}, {"kubernetes.io/metadata.name": "elsewhere"})
USERS = Peer({}, {"kubernetes.io/metadata.name": "science", "understudy.dev/mlflow-users": "true"})
OUTSIDE = Peer()
API_SERVER = {"dev": Peer(address="10.96.0.1"), "production": Peer(address="192.0.2.1")}
PROXY = Peer(address="192.0.2.2")
HUB = Peer(address="198.51.100.7")
METADATA = Peer(address="169.254.169.254")
ON_THE_NODE = Peer(address="169.254.20.10")


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    return all(labels.get(term["key"]) in term["values"] for term in selector.get("matchExpressions", ()))


def rule_matches(peer: Peer, written: dict[str, Any]) -> bool:
    """Whether a peer is one of those that a rule names."""
    if peer.labels is None or "ipBlock" in written:
        block, address = written.get("ipBlock"), ip_address(peer.address)
        within = block is not None and address in ip_network(block["cidr"])
        return within and not any(address in ip_network(hole) for hole in block.get("except", ()))
    in_namespace = (
        matches(written["namespaceSelector"], peer.namespace) if "namespaceSelector" in written else peer.is_ours
    )
    return in_namespace and matches(written.get("podSelector", {}), peer.labels)


def may(policies: list[dict[str, Any]], direction: str, pod: Peer, peer: Peer, port: tuple[str, int]) -> bool:
    """Whether a pod's side of a connection is allowed; somebody else's always is."""
    if not pod.is_ours:
        return True
    for policy in policies:
        assert pod.labels is not None
        if not matches(policy["spec"]["podSelector"], pod.labels):
            continue
        for rule in policy["spec"].get(direction, ()):
            peers = rule.get("from" if direction == "ingress" else "to")
            ports = [(entry["protocol"], entry["port"]) for entry in rule.get("ports", ())]
            if (peers is None or any(rule_matches(peer, entry) for entry in peers)) and (not ports or port in ports):
                return True
    return False


def protocol_and_port(port: int) -> tuple[str, int]:
    """A negative number is a port of UDP."""
    return ("UDP", -port) if port < 0 else ("TCP", port)


def of_launchers() -> list[dict[str, Any]]:
    """The policies that launchers create for jobs with several nodes; an evaluation has one node."""
    return [network.render(identity, None) for identity in (TEACHER, DISTILL)]


def may_speak(resources: list[dict[str, Any]], source: Peer, target: Peer, port: int) -> bool:
    policies = [*named(resources, "NetworkPolicy").values(), *of_launchers()]
    assert any(policy["spec"]["podSelector"] == {} for policy in policies), "denied by default"
    return may(policies, "egress", source, target, protocol_and_port(port)) and may(
        policies, "ingress", target, source, protocol_and_port(port)
    )
