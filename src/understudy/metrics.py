"""Prometheus metrics of this process, served on a separate address if the environment names one."""

import logging
import os

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from understudy.errors import InputError

VARIABLE = "UNDERSTUDY_METRICS"
"""HOST:PORT to listen on; unset or empty for none. No authentication: any client that reaches the port can read."""
REGISTRY = CollectorRegistry()

log = logging.getLogger(__name__)
ProcessCollector(registry=REGISTRY)


def address() -> tuple[str, int] | None:
    """The address to listen on; None if none is configured.

    Raises:
        InputError: the variable is not a HOST:PORT.
    """
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"{VARIABLE}: {value!r} is not HOST:PORT; write 127.0.0.1:9095, or leave it unset")
    return host.strip("[]"), int(port)


def serve() -> bool:
    """Serve the metrics for the life of this process; False if no address is configured, or it is in use.

    Raises:
        InputError: the variable is not a HOST:PORT.
    """
    where = address()
    if where is None:
        return False
    try:
        start_http_server(where[1], where[0], REGISTRY)
    except OSError as error:  # such as two runs on one machine: missing metrics must not stop the work
        log.warning("no metrics of this process: %s=%s: %s", VARIABLE, os.environ[VARIABLE], error)
        return False
    return True
