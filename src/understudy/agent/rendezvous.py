"""Where and how the nodes of a job meet, as torchrun takes it."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from understudy.agent.node_cache import CACHE

PATIENCE = 1800  # seconds that nodes wait for one that copies for longer


def rendezvous(environment: Mapping[str, str]) -> dict[str, Any]:
    """How the nodes find each other, as torchrun's LaunchConfig takes it, from the variables of torchrun (PET_*).

    The training operator names a rendezvous that any node may join, Trainer v2 a first node and everyone's number.
    """
    least, _, most = environment["PET_NNODES"].partition(":")
    nodes = {"min_nodes": int(least), "max_nodes": int(most or least)}
    if "PET_RDZV_ENDPOINT" in environment:
        return {
            **nodes,
            "run_id": environment.get("PET_RDZV_ID", "none"),
            "rdzv_backend": environment["PET_RDZV_BACKEND"],
            "rdzv_endpoint": environment["PET_RDZV_ENDPOINT"],
        }
    return {
        **nodes,
        "run_id": "none",
        "rdzv_backend": "static",
        "rdzv_endpoint": f"{environment['PET_MASTER_ADDR']}:{environment['PET_MASTER_PORT']}",
        "rdzv_configs": {"rank": int(environment["PET_NODE_RANK"])},
    }


def await_others(found: dict[str, Any]) -> dict[str, Any]:
    """The rendezvous, when one may copy for longer than another: whoever is done first waits.

    torch gives a node 600 s to come, and the one that hosts the rendezvous 60 s; pods that gave up would copy anew.

    Args:
        found: as rendezvous() returns it.
    """
    if CACHE not in os.environ:
        return found
    if found["rdzv_backend"] == "c10d":
        deadline = time.monotonic() + PATIENCE
        while not _is_up(found["rdzv_endpoint"]) and time.monotonic() < deadline:
            time.sleep(0.5)
    patience = "join_timeout" if found["rdzv_backend"] == "c10d" else "timeout"
    return {**found, "rdzv_configs": {**found.get("rdzv_configs", {}), patience: PATIENCE}}


def _is_up(endpoint: str) -> bool:
    """Whether the host of the rendezvous is there: this node itself, or one that accepts connections."""
    host, _, port = endpoint.rpartition(":")
    if _is_this_node(host):
        return True
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=5):
        return True
    return False


def _is_this_node(host: str) -> bool:
    """Only an address of one's own can be bound."""
    with suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
            return True
    return False
