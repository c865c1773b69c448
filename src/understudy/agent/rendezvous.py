"""The rendezvous of a job's nodes, as torchrun takes it."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from understudy.agent.node_cache import CACHE

JOIN_TIMEOUT = 1800  # seconds that nodes wait for one that copies for longer


@dataclass(frozen=True)
class Rendezvous:
    """The rendezvous of an attempt; fields as of torchrun's LaunchConfig."""

    min_nodes: int
    max_nodes: int
    run_id: str
    """Ranks of another id are not let in."""
    backend: str
    """c10d: the first node hosts it and any may join. static: every node has been given its number."""
    endpoint: str
    configs: Mapping[str, int] = field(default_factory=dict)
    """Further settings of the backend."""


def rendezvous(environment: Mapping[str, str]) -> Rendezvous:
    """How the nodes find each other, from the variables of torchrun (PET_*).

    The training operator names a rendezvous that any node may join, Trainer v2 a first node and everyone's number.
    """
    least, _, most = environment["PET_NNODES"].partition(":")
    nodes = int(least), int(most or least)
    if "PET_RDZV_ENDPOINT" in environment:
        run_id = environment.get("PET_RDZV_ID", "none")
        return Rendezvous(*nodes, run_id, environment["PET_RDZV_BACKEND"], environment["PET_RDZV_ENDPOINT"])
    endpoint = f"{environment['PET_MASTER_ADDR']}:{environment['PET_MASTER_PORT']}"
    return Rendezvous(*nodes, "none", "static", endpoint, {"rank": int(environment["PET_NODE_RANK"])})


def await_others(found: Rendezvous) -> Rendezvous:
    """The rendezvous, with a longer timeout where nodes copy: one may take longer than another.

    torch gives a node 600 s to join, and the host of the rendezvous 60 s; pods that gave up would copy again.
    """
    if CACHE not in os.environ:
        return found
    if found.backend == "c10d":
        # The host of the rendezvous is a node that copies too: it does not listen before it is done, and torch's
        # client gives up after 60 s.
        deadline = time.monotonic() + JOIN_TIMEOUT
        while not _is_up(found.endpoint) and time.monotonic() < deadline:
            time.sleep(0.5)
    timeout = "join_timeout" if found.backend == "c10d" else "timeout"  # the same setting, as each backend names it
    return replace(found, configs={**found.configs, timeout: JOIN_TIMEOUT})


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
