"""Connections that the network policies allow and deny, by a reading of their rules; tests/cluster tries them."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.manifests.peers import (
    API_SERVER,
    CLEANUP,
    DNS,
    DRIVER,
    ELSEWHERE,
    FETCHER,
    HUB,
    MEASURING,
    METADATA,
    MLFLOW,
    ON_THE_NODE,
    OTHER,
    OTHER_RANK,
    OUTSIDE,
    PROXY,
    RANK,
    SAME_AGAIN,
    UNKNOWN_RANK,
    USERS,
    Peer,
    may,
    may_speak,
)
from tests.unit.manifests.rendered import KUBECTL, MANIFESTS, OVERLAYS, built, dev_with, named

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


EVERYBODY = (DRIVER, FETCHER, CLEANUP, RANK, MEASURING, MLFLOW, OTHER)


@pytest.mark.parametrize(
    ("source", "target", "port", "allowed"),
    [
        (RANK, RANK, 40123, True),
        (RANK, SAME_AGAIN, 40123, True),
        (RANK, OTHER_RANK, 40123, False),
        (OTHER_RANK, RANK, 29500, False),
        *((MEASURING, peer, 40123, False) for peer in (RANK, MEASURING, DRIVER, OUTSIDE, PROXY)),
        (UNKNOWN_RANK, RANK, 40123, False),
        *((peer, MLFLOW, 5000, True) for peer in (DRIVER, FETCHER)),
        *((peer, MLFLOW, 5000, False) for peer in (RANK, OTHER, CLEANUP, MEASURING)),
        *((peer, RANK, 40123, False) for peer in (OTHER, MLFLOW, DRIVER, FETCHER)),
        (RANK, DRIVER, 80, False),
        *((peer, DNS, port, True) for peer in EVERYBODY for port in (53, -53)),
        (RANK, DNS, 443, False),
        *((peer, ON_THE_NODE, port, True) for peer in (DRIVER, RANK, MLFLOW) for port in (53, -53)),
        *((peer, ON_THE_NODE, 80, False) for peer in (RANK, DRIVER, FETCHER)),
        (RANK, OUTSIDE, 53, False),
        (RANK, ELSEWHERE, 53, False),
        *((peer, OUTSIDE, port, False) for peer in (DRIVER, CLEANUP) for port in (443, 6443, 80, 5432)),
        *((peer, METADATA, 80, False) for peer in EVERYBODY),
        *((RANK, OUTSIDE, port, False) for port in (443, 6443, 5000, 40123)),
        *((OTHER, OUTSIDE, port, False) for port in (443, 6443)),
        *((MLFLOW, OUTSIDE, port, True) for port in (443, 5432, 6443)),
        *((MLFLOW, OUTSIDE, port, False) for port in (80, 9000)),
        (USERS, MLFLOW, 5000, True),
        (USERS, MLFLOW, 22, False),
        (ELSEWHERE, MLFLOW, 5000, False),
        (OUTSIDE, MLFLOW, 5000, False),
        *((peer, RANK, 40123, False) for peer in (USERS, ELSEWHERE, OUTSIDE)),
        *((peer, DRIVER, 8080, False) for peer in (USERS, ELSEWHERE, OUTSIDE, MLFLOW)),
        (RANK, ELSEWHERE, 5000, False),
    ],
)
def test_only_the_flows_of_the_table_are_allowed(
    overlay: list[dict[str, Any]], source: Peer, target: Peer, port: int, allowed: bool
) -> None:
    assert may_speak(overlay, source, target, port) == allowed


@pytest.mark.parametrize("name", OVERLAYS)
def test_launchers_alone_reach_the_api_server(name: str) -> None:
    server = API_SERVER[name]
    for port in (443, 6443):
        reached = [peer for peer in EVERYBODY if may_speak(built(f"overlays/{name}"), peer, server, port)]
        assert reached in ([DRIVER, FETCHER, CLEANUP], [DRIVER, FETCHER, CLEANUP, MLFLOW])


@pytest.mark.parametrize(
    ("name", "target", "port"), [("dev", HUB, 443), ("production", PROXY, 8888)], ids=["dev", "production"]
)
def test_only_steps_that_fetch_go_out_and_only_to_addresses_of_their_overlay(
    name: str, target: Peer, port: int
) -> None:
    resources = built(f"overlays/{name}")
    assert [peer for peer in EVERYBODY if may_speak(resources, peer, target, port)] in ([FETCHER], [FETCHER, MLFLOW])
    assert not may_speak(resources, DRIVER, target, port)
    assert not any(may_speak(resources, FETCHER, target, other_port) for other_port in (80, 22, 8080))
    assert may_speak(resources, FETCHER, HUB, 443) == (name == "dev")
    assert not may_speak(resources, FETCHER, Peer(address="10.2.3.4"), 8443)
    assert not any(may_speak(built("base"), FETCHER, target, port) for target in (HUB, PROXY))


@pytest.mark.parametrize(
    ("component", "address", "port"),
    [("identity-eks", "169.254.170.23", 80), ("identity-gke", "169.254.169.254", 80)],
)
def test_a_cloud_s_own_credentials_are_for_launchers_and_never_for_ranks(
    component: str, address: str, port: int, tmp_path: Path
) -> None:
    resources, server = dev_with(component, tmp_path), Peer(address=address)
    assert [peer for peer in EVERYBODY if may_speak(resources, peer, server, port)] == [DRIVER, FETCHER]
    node = Peer(address="169.254.169.254")
    assert may_speak(resources, DRIVER, node, 80) == (component == "identity-gke"), "on EKS it gives the node's own"


def test_the_documented_flows_name_policies_that_exist() -> None:
    table = (MANIFESTS.parent / "docs" / "operating" / "network.md").read_text()
    rules = {
        cell.strip("` ")
        for line in table.splitlines()
        if line.count("|") == 4
        for cell in line.split("|")[3].split(",")
    }
    policies = named(built("base"), "NetworkPolicy").keys() - {"default-deny"}
    assert policies == rules - {"rule", "---", "a job's own"}


PROMETHEUS = Peer({"app.kubernetes.io/name": "prometheus"}, {"kubernetes.io/metadata.name": "monitoring"})
BESIDE_IT = Peer({"app.kubernetes.io/name": "grafana"}, {"kubernetes.io/metadata.name": "monitoring"})


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        (PROMETHEUS, DRIVER, True),
        (PROMETHEUS, MLFLOW, True),
        (PROMETHEUS, RANK, False),
        (PROMETHEUS, CLEANUP, False),
        (BESIDE_IT, MLFLOW, False),
        (USERS, MLFLOW, False),
        (DRIVER, MLFLOW, False),
        (RANK, DRIVER, False),
        (OTHER, DRIVER, False),
    ],
)
def test_metrics_are_for_prometheus_alone(source: Peer, target: Peer, allowed: bool) -> None:
    policies = list(named(built("overlays/production"), "NetworkPolicy").values())
    assert may(policies, "ingress", target, source, ("TCP", 9095)) is allowed
