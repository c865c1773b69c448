"""The rendezvous of a job's nodes, in torchrun's terms."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from understudy.agent.node_cache import CACHE

JOIN_TIMEOUT = 1800  # seconds that nodes wait for one that is still copying


@dataclass(frozen=True)
class Rendezvous:
    """The rendezvous of an attempt; fields as in torchrun's LaunchConfig."""

    min_nodes: int
    max_nodes: int
    run_id: str
    """Ranks with another id are rejected."""
    backend: str
    """c10d: the first node hosts it and any may join. static: every node has a fixed rank."""
    endpoint: str
    configs: Mapping[str, int] = field(default_factory=dict)
    """Further settings of the backend."""


def rendezvous(environment: Mapping[str, str]) -> Rendezvous:
    """The rendezvous of the nodes, from the variables of torchrun (PET_*).

    The training operator names an endpoint that any node may join, Trainer v2 a master and the rank of each node.
    """
    least, _, most = environment["PET_NNODES"].partition(":")
    nodes = int(least), int(most or least)
    if "PET_RDZV_ENDPOINT" in environment:
        run_id = environment.get("PET_RDZV_ID", "none")
        return Rendezvous(*nodes, run_id, environment["PET_RDZV_BACKEND"], environment["PET_RDZV_ENDPOINT"])
    endpoint = f"{environment['PET_MASTER_ADDR']}:{environment['PET_MASTER_PORT']}"
    return Rendezvous(*nodes, "none", "static", endpoint, {"rank": int(environment["PET_NODE_RANK"])})


def await_others(settings: Rendezvous) -> Rendezvous:
    """Wait for the rendezvous host, and extend the timeout where nodes copy, since one may take longer than another.

    torch gives a node 600 s to join, and the host of the rendezvous 60 s; pods that timed out would copy again.
    """
    if CACHE not in os.environ:
        return settings
    if settings.backend == "c10d":
        # The host of the rendezvous also copies first, and listens only then; torch's client times out after 60 s.
        deadline = time.monotonic() + JOIN_TIMEOUT
        while not _is_up(settings.endpoint) and time.monotonic() < deadline:
            time.sleep(0.5)
    timeout = "join_timeout" if settings.backend == "c10d" else "timeout"  # each backend's name of the same setting
    return replace(settings, configs={**settings.configs, timeout: JOIN_TIMEOUT})


def _is_up(endpoint: str) -> bool:
    """Whether the rendezvous host is up: it is this node, or accepts connections."""
    host, _, port = endpoint.rpartition(":")
    if _is_this_node(host):
        return True
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=5):
        return True
    return False


def _is_this_node(host: str) -> bool:
    """Whether a host is this node: only a local address can be bound."""
    with suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
            return True
    return False
